"""The session of a client for groups that pull: registrations, members, and commands of the server.

Used by `app` and `pull`. It imports only `core`.
"""
