"""A client's session: what it says of itself, what it is told about its groups, what a server may ask of it."""
