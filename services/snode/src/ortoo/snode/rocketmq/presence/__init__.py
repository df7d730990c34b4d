"""RocketMQ's clients while they are there: heartbeats, and the conversation on their telemetry streams.

In come signs of life, settings and answers to commands; out go settings, and each answer to who waits for it. `rpc`
alone may import this room.
"""
