"""The command line: data on stdout, talk on stderr, an exit code that says what happened."""
