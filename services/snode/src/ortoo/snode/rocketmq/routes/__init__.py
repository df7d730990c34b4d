"""Routes, assignments and offsets, as RocketMQ's clients expect them."""
