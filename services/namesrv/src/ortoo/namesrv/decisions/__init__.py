"""Decisions about topics, groups and who is there: what is and what is asked in, what shall be out. Pure; for all."""
