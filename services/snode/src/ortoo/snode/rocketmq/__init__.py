"""The gateway for RocketMQ 5's own protocol: its words in, what the snode does anyway, its words out."""
