"""Which messages a reader gets: tags and SQL conditions, applied to columns before bodies are touched."""
