"""Log lines of all processes: events, their levels and the logger."""
