"""Opens a log: reads its files, and returns its end, losses and state. docs/formats/crash-safety.md has the reasons.

`store` uses it to open a log, and `offline` to inspect and repair one. No other package imports it.
"""
