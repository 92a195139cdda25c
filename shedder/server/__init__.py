"""The server: an engine over gRPC, to those who may."""
