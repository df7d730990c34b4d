"""The parts that serve clients, opened for each term of leadership.

It takes settings and an open log, and returns servers and a store with its services. `app` and `__main__` may import
it.
"""
