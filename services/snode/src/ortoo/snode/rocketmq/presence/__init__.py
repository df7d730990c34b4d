"""The presence of RocketMQ's clients: heartbeats, and the conversation on their telemetry streams.

The package takes heartbeats, settings and answers to commands. It returns settings, and passes each answer to its
waiting caller. Only `rpc` imports it.
"""
