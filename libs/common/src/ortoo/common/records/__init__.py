"""Messages in columns: one message in, one record batch out, and back. No gRPC, no protobuf, no event loop."""
