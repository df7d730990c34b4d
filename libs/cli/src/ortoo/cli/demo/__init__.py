"""`make demo`: messages of real data through three real processes."""
