"""The open store: appends, reads and state changes in; offsets, batches and durable answers out.

Every room above may import it. Who serves requests calls `Store`; who decides over the state, or copies the log, takes
the parts from its `engine`.
"""
