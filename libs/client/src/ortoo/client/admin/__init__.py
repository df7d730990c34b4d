"""The operator's calls. Results are plain values that can be converted to JSON.

`app` and `blocking` use it; the command line calls it through them. It imports `read`, `produce` and `core`.
"""
