"""Decisions about topics, groups and who is there, as pure functions of what is."""
