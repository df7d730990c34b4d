"""A machine's disk: data that survive its processes, the effects of a power cut, latencies and failures.

Enters: the machine's randomness, and faults by name. Leaves: a `Disk` for each process of the machine. It depends only
on the enode's disk interfaces; only `ortoo.testing.simulation` imports it.
"""
