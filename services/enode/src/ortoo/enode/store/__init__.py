"""The open store: takes appends, reads and state changes, and returns offsets, batches and durable answers.

Every package above may import it. Request handlers call `Store`. Code that makes decisions from the state, or copies
the log, uses the parts of `Store.engine`.
"""
