"""Push sessions: credit and acknowledgements in, whole batches in order out, slow ones evicted.

The doors and the clients' sessions import it.
"""
