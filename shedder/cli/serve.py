"""`shedder serve`: one data directory over gRPC, until SIGTERM."""
