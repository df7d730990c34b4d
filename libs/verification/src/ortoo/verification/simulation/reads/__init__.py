"""Reads during faults: one client for each replica sends every read that the enode answers from its state.

Enters: replicas' addresses, and the model of reads. Leaves: findings. The scenario `reading` writes what they read.
"""
