"""The parts that serve clients: opened permanently with one replica, or for each term of leadership with several.

It takes settings and an open log, and returns servers and a store with its services. `app` and `__main__` may import
it.
"""
