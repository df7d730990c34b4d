"""The oracle: a model of the acknowledged messages, which every observation of clients is compared with.

Enters: messages sent, answers and deliveries of clients. Leaves: findings, each with the broken promise. It knows
messages and offsets and not the servers; only `ortoo.verification.simulation.run` imports it.
"""
