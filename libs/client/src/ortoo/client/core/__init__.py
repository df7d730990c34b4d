"""What every room of the client stands on.

In come addresses and what servers answer; out go calls, kept sessions, and plain values: queues, filters, batches. All
other rooms may import it, and it imports none of them. Protobuf is read and written by `wire`.
"""
