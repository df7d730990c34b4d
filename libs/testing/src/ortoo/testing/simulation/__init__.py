"""The whole cluster in one thread, on virtual time, with every fault drawn from a seed.

Enters: a seed and the options of a run. Leaves: findings, and the trace of the run. Production never imports it.
"""
