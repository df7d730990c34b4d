"""The presence of RocketMQ's clients: heartbeats, and the conversation on their telemetry streams.

It takes heartbeats, settings and answers to commands; it returns settings, and passes each answer to its waiting
caller. Only `rpc` imports this package.
"""
