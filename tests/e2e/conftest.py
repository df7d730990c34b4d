"""Clusters of real processes for the tests here."""

from ortoo.testing.servers.fixtures import cluster, processes

__all__ = ["cluster", "processes"]
