"""Runs: one seed from beginning to end, many seeds in parallel, and the smallest run that still fails.

Enters: seeds and durations. Leaves: outcomes, and the command that repeats one. Only the command line, `make simulate`
and the tests import it.
"""
