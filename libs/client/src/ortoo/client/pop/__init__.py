"""Popping: messages taken one by one with a lease, and what becomes of them."""
