"""The work of clients in a run: send, consume, ack and nack.

Enters: a cluster and the oracle. Leaves: scenarios. Each one is a topic with its clients, and the conditions that must
hold in the end. Only `ortoo.verification.simulation.run` imports it.
"""
