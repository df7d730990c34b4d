"""Opens a log: takes its files, and returns its end, losses and state. docs/formats/crash-safety.md has the reasons.

`store` opens with it, and `offline` inspects and repairs with it. No other package imports it.
"""
