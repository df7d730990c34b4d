"""Several processes that serve one snode's ports: kept running by a parent that holds no state.

In come settings with `workers` > 1 and signals; out go worker processes, one set of metrics, one readiness. A worker is
a snode like any other: it knows of the parent its ports alone.
"""
