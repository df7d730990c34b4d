"""What a cluster stands beside: the name servers' database and the snodes' Redis, in the same thread.

Enters: the loop and chance. Leaves: what `open_namesrv` and `open_snode` take in place of the real ones, and their
faults. Only `ortoo.testing.simulation` imports it.
"""
