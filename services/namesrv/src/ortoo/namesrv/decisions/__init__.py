"""Decisions about topics, groups and processes: current state and requests in, new state out. Pure; for all
packages."""
