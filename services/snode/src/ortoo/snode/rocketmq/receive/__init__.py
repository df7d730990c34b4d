"""Receiving: pops told frame by frame, leases renewed, messages settled."""
