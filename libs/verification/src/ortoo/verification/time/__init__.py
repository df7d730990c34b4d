"""Clocks that tests control."""
