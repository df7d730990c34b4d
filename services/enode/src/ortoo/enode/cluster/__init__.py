"""What the enode says to name servers and hears from them.

In: topics and their placements. Out: leases with the enode's address and its followers; copies of topics in the store.
`app`, `reigns`, `rpc` and `observe` may import it.
"""
