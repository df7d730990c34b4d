"""gRPC as every role uses it: channels and servers from one place, errors translated, large fields without copies."""
