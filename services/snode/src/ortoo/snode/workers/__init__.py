"""Several processes that serve one snode's ports: kept running by a parent that holds no state.

The package takes settings with `workers` > 1 and signals, and provides worker processes with common metrics and
readiness. A worker is an ordinary snode; only its ports and its part of the memory come from the parent.
"""
