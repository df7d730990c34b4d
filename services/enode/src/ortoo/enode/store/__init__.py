"""The open store: takes appends, reads and state changes, and returns offsets, batches and durable answers.

Every package above may import it. Request handlers call `Store`. Code that decides over the state, or copies the log,
uses the parts of its `engine`.
"""
