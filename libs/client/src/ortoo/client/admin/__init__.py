"""What operators do, as calls; what comes of it, as plain values that turn into JSON by themselves.

For `app` and `blocking`; the command reaches it through them. It imports `read`, `produce` and `core`.
"""
