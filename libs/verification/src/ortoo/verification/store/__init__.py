"""Tests of a store: a model of its content, workloads, crash points, damage."""
