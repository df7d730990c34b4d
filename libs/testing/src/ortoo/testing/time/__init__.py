"""Clocks that tests move."""
