"""Copies frames from the logs of other replicas, and encodes the frames of the replication protocol."""
