"""Runs: one seed from beginning to end, many seeds beside one another, and the smallest run that still fails.

Enters: seeds and how long to run them. Leaves: outcomes, and the command that repeats one. Only the command line,
`make simulate` and the tests import it.
"""
