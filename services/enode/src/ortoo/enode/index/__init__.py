"""Where things lie: batches by queue and offset, messages by key and id; indexes are caches, made anew when missing.

In: frames of the log. Out: rows, places, contents of segments. `reading`, `recovery` and the rooms above may import it.
"""
