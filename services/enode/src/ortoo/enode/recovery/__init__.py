"""Opening a log: files in; its end, its losses and its state out. docs/formats/crash-safety.md argues why.

`store` opens with it, `offline` looks and mends with it; nobody else imports it.
"""
