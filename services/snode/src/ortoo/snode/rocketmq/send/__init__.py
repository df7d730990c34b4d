"""Sends, transactions and recalls of RocketMQ's clients."""
