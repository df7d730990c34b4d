"""Pages about processes, connected clients and settings."""
