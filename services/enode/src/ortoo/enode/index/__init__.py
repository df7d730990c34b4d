"""Where things lie: batches by queue and offset, messages by key and id; indexes are caches, made anew when missing."""
