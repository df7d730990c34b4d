"""Pages about consumer groups: progress, explanation, dead letters, and offsets."""
