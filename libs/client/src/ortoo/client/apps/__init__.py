"""Programs declared with decorators: handler functions, their topics, their body types and their dependencies.

This package uses the consumers and producers of the other packages, which import nothing from it.
"""
