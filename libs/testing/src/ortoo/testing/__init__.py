"""Fakes, faulty disks and clusters for tests and benchmarks; production never imports it."""
