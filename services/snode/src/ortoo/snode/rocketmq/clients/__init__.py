"""RocketMQ's connected clients, their settings and their routes.

The package takes clients' settings and the cluster's topics and groups, and returns settings, routes and streams of
commands. Every package that serves clients may import it; it imports only `protocol`.
"""
