"""Disks that know what a power cut leaves, and that fail on demand."""
