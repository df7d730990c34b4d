"""Who of RocketMQ's clients is there, and what they are told about how to behave."""
