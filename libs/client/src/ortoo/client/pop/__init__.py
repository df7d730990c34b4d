"""Pop consumers: messages leased one by one, then acknowledged, released, nacked or parked.

Used by `app` and `blocking`. It imports only `core`.
"""
