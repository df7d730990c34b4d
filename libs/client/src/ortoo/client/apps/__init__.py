"""Programs declared by decorators: which function handles which topic, with what, and what its bodies are.

In: functions and their annotations. Out: consumers and producers of the rest of the client. Nothing here imports it.
"""
