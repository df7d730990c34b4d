"""State changes and their bytes; docs/formats/log.md shows these tables. Pure."""
