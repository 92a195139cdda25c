"""The wire: our types to protobuf and Arrow bytes and back, errors to status codes and back."""
