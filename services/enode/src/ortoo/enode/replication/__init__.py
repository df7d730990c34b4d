"""Copies of an enode's log in other processes: byte for byte, by position."""
