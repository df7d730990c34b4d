"""Copies of the log between replicas: copies frames of others, and encodes the frames of the replication protocol."""
