"""The seam to the disk, and the small files that are written whole."""
