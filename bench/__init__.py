"""Benchmarks: each `python -m bench.NAME --json` prints its setting, method, figures and baseline as one object."""
