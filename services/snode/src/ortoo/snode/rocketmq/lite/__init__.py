"""Lite topics: which client receives which, and pops over them."""
