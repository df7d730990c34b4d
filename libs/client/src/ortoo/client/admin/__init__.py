"""The operator's calls. Results are plain values that can be converted to JSON.

Used by `app` and `blocking`; the command line reaches it through them. It imports `read`, `produce` and `core`.
"""
