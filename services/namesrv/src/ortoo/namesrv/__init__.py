"""The name server: topics, groups, routes, and the registered processes."""
