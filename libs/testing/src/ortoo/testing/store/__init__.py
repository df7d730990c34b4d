"""A store put to the test: a model of what it must hold, workloads, crash points, damage."""
