"""The session of a client for groups that pull: registrations, members, and commands of the server.

`app` and `pull` use this package, which imports only `core`.
"""
