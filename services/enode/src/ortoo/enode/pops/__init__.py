"""Pop consumption: leases of single messages, acknowledgements, nacks, dead letters.

In: requests of consumers, from rpc. Out: leased batches and the state changes that record the leases. The entry points
are `leasing` and `retry_copies`; `line` and `key_order` are pure decisions. `rpc` and packages above it import this
package.
"""
