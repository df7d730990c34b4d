"""The protocol's words: callers, codes, names, filters and messages, to and from ours."""
