"""What serves clients while this process may: for good with one member, and for each reign of another.

In: settings and an open log. Out: servers, a store with all that decides over it. `app` and `__main__` may import it.
"""
