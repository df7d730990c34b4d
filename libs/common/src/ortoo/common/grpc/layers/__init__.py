"""The layers around every call of a server: each is entered before the handler and left after it.

They serve calls of all transports alike, and return answers or refusals.
"""
