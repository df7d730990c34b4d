"""Runs, models and real servers that verify this repository. They are not published; only tests import them."""
