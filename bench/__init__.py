"""Benchmarks: each `python -m bench.NAME --json` prints one JSON object with its setting, method, figures and baseline."""
