"""The name server: topics, groups, routes, and who is there."""
