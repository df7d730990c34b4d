"""RocketMQ's clients while they are there: heartbeats, the telemetry conversation, operators' commands.

In come signs of life and operators' commands; out go settings, commands and what clients answered to them. `rpc`
alone may import this room.
"""
