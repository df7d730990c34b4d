"""The interface to the disk, and the small files that are written whole.

It takes folders, names and bytes, and makes the bytes durable or raises an error. Every package may import it; it
imports none.
"""
