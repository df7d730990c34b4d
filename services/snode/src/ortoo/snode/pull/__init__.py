"""Reading for those who ask: pulls, ranges, searches; offsets of groups, how they move, how far behind they are."""
