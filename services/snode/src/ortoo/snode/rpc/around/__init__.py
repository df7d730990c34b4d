"""What stands around every call of the server: interceptors, rights, encryption.

In come calls before their handlers see them; out go the same calls, or refusals. `app` alone may import this room.
"""
