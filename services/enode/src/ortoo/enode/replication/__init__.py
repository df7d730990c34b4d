"""One replica at work: passes events of disk, network, clock and name servers to `members`, and executes its actions.

`rpc` sends messages to other replicas and reports to name servers; `app` opens the parts of a leader. Both may import
it.
"""
