"""Real things started for tests: roles, databases, clusters, containers, other people's tools."""
