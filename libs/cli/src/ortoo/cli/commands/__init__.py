"""The commands about messages, topics and groups. Each takes arguments and a client, and returns its output."""
