"""Calls of the application's handlers: each end of a handler settles its message.

Consumers give a handler and get its ends. Nothing here knows a protocol.
"""
