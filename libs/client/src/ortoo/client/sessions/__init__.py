"""A client's session for groups that pull: registrations go in, members and commands of the server come out.

For `app` and `pull`. It imports `core` alone.
"""
