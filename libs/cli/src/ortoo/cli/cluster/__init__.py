"""The commands about a whole cluster: processes, replicas, settings, users, and declarations of topics and groups."""
