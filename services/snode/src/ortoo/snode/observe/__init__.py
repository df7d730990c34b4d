"""What went through this snode: counts, spans and records of the trace topic."""
