"""Several processes that serve one snode's ports: kept running by a parent that holds no state.

It takes settings with `workers` > 1 and signals, and provides worker processes with common metrics and readiness. A
worker is an ordinary snode; it gets only its ports from the parent.
"""
