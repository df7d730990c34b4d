"""`make demo`: the main job on real data, through three real processes."""
