"""Declares commands and prints their answers as tables or JSON. For all commands."""
