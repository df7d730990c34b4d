"""Disturbances: operators that change the cluster under load, and clients that send invalid requests.

Enters: a cluster and the oracle, as in `workload`. Leaves: scenarios that must not affect other clients. Only
`ortoo.verification.simulation.run` imports it.
"""
