"""The services beside a cluster: the name servers' database and the snodes' Redis, in the same thread.

Enters: the loop and randomness. Leaves: replacements for `open_namesrv` and `open_snode`, and their faults. Only
`ortoo.testing.simulation` imports it.
"""
