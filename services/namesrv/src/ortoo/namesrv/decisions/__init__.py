"""Decisions about topics, groups and processes: state and requests in, new state out. Pure; for all packages."""
