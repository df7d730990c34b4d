"""Communication of the enode with name servers.

In: topics and their placements. Out: leases with the enode's address and its followers, and copies of topics in the
store. `app`, `leadership`, `rpc` and `observe` may import it.
"""
