"""The stored directory: reads and writes it in a database, on one thread, as plain values."""
