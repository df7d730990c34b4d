"""RocketMQ's clients while they are there: heartbeats, the telemetry conversation, operators' commands."""
