"""Who of RocketMQ's clients is there, and what they are told: how to behave, and where the queues are.

In come what clients say of themselves and the cluster's topics and groups; out go settings, routes and streams of
commands. Every room that serves clients may import this one; it imports `protocol` alone.
"""
