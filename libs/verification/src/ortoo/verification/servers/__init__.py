"""Real services for tests: roles, databases, clusters, containers, third-party tools."""
