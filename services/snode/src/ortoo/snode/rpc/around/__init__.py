"""The snode's own layers around every call: names, rights, limits, encryption.

In come calls before their handlers see them; out go the same calls, or refusals. `app` alone may import this room.
"""

OWN = ("/ortoo.v1.", "/apache.rocketmq.v2.")
"""Services that have these layers; health and reflection have not."""
