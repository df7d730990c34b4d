"""Shared by reads and writes: options, offsets, columns, and a worker's connection to the cluster."""
