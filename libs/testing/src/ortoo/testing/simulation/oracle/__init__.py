"""What must be true: a model of what was acknowledged, against which everything that clients see is held.

Enters: what clients sent, were told and received. Leaves: findings, each with the promise that was broken. It knows
messages and offsets and nothing of the servers; only `ortoo.testing.simulation` imports it.
"""
