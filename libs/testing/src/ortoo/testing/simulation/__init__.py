"""The whole cluster in one thread, on virtual time: kernel, network, disks, databases and roles.

Enters: a seed. Leaves: a world in which roles and clients run, and the trace of their steps. Production never imports
it.
"""
