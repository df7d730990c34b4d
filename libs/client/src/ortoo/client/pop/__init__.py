"""Pop consumers: messages taken one by one with a lease come in, what becomes of each goes out.

For `app` and `blocking`. It imports `core` alone.
"""
