"""Clusters of real processes for the tests here."""

from ortoo.verification.servers.fixtures import cluster, processes

__all__ = ["cluster", "processes"]
