"""Messages that nobody may see yet: delayed ones and those of open transactions."""
