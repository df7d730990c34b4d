"""The duties of a replica's driver: what its disk must hold before a message leaves, and before bytes are removed.

Enters: each message between replicas, and each change of their disks. Leaves: findings. A broken duty is found when it
is broken, also if no client notices it in this run.
"""
