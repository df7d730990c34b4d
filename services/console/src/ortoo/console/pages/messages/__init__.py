"""Pages about messages: found, explained, delayed, and in open transactions."""
