"""Messages handed out one by one: leases, acknowledgements, returns, dead letters.

In: what consumers ask for, by way of rpc. Out: batches under a lease, and the state changes that say so. `leasing` and
`sending_back` are the ways in; `line` and `key_order` decide, purely. Only rpc and the rooms around it import this one.
"""
