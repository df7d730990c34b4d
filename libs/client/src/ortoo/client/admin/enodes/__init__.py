"""Enodes: their replicas, and the drain of an enode."""
