"""The duties of a replica's driver: its disk holds the vote and the bytes that a message or a truncation relies on.

Enters: each message between replicas, and each change of their disks. Leaves: findings. A broken duty is found when it
is broken, also if no client notices it in this run.
"""
