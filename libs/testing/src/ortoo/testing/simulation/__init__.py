"""The whole cluster in one thread, on virtual time, with every fault drawn from a seed.

Enters: a seed and what to run. Leaves: what was found wrong, and the trace of the run. Production never imports it.
"""
