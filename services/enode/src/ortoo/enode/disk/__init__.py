"""The seam to the disk, and the small files that are written whole.

In: folders, names and bytes. Out: bytes that are durable, or an error that says they are not. Every room may
import it; it imports none.
"""
