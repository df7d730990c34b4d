"""Runs of the simulated cluster of `ortoo.testing.simulation`: its clients, faults and oracle.

Enters: a seed and the options of a run. Leaves: findings, and the trace of the run.
"""
