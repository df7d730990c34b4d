"""Programs declared with decorators: handler functions, their topics, their body types and their dependencies.

Built on the consumers and producers of the rest of the client, which imports nothing from here.
"""
