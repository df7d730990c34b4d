"""What clients do in a run: send, consume, settle.

Enters: a cluster and the oracle. Leaves: scenarios, each of which is a topic with those who use it, and what must be
true of it in the end. Only `ortoo.testing.simulation` imports it.
"""
