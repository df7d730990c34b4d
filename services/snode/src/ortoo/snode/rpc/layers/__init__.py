"""The snode's layers around every call: namespaces, permissions, limits, TLS.

The layers receive calls before their handlers, and pass or refuse them. Only `app` imports this package.
"""

OWN_SERVICES = ("/ortoo.v1.", "/apache.rocketmq.v2.")
"""Services with these layers; health and reflection have none."""
