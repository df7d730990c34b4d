"""The operator's calls. Results are plain values that can be converted to JSON.

`app` and `blocking` use this package, and the command line uses these two. This package imports `read`, `produce` and
`core`.
"""
