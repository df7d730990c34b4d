"""A machine's disk: what survives its processes, what a power cut leaves, how long work takes, what fails.

Enters: the machine's chance, and faults by name. Leaves: a `Disk` for each life of a process. It knows the enode's
seams to the disk and nothing else; only `ortoo.testing.simulation` imports it.
"""
