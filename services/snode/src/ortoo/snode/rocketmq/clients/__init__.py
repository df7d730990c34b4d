"""RocketMQ's connected clients, their settings and their routes.

It takes clients' settings and the cluster's topics and groups, and returns settings, routes and streams of commands.
Every package that serves clients may import this one; it imports only `protocol`.
"""
