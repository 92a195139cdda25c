"""Parts of the benchmark of OSCAR's figures: archives, simultaneous questions, pictures."""
