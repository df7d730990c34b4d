"""The open store: appends, reads and state changes in; offsets, batches and durable answers out."""
