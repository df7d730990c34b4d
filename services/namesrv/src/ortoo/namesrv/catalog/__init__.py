"""The stored directory: plain values in and out of a database, on one thread. The directory and the handlers use it."""
