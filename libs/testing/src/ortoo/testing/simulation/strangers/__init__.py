"""Those who disturb the others: operators who change things under way, and clients that ask for nonsense.

Enters: a cluster and the oracle, as in `workload`. Leaves: scenarios in which nobody else may be harmed. Only
`ortoo.testing.simulation.run` imports it.
"""
