"""What the enode tells about itself: metrics and spans.

In: the store, pops, an intake. Out: numbers by name, and an intake that records spans.
Only `app` imports it.
"""
