"""Pop consumers: messages leased one by one, then acknowledged, released, nacked or parked.

`app` and `blocking` use this package, which imports only `core`.
"""
