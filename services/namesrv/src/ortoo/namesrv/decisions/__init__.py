"""Decisions about topics, groups and processes: the new state after a request. Pure; all packages use it."""
