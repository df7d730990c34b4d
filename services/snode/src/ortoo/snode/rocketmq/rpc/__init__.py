"""apache.rocketmq.v2 on the wire: each call read, passed on, answered in the protocol's words.

In come calls of clients and the snode's rooms, of which the gateway makes its parts; out go answers. `ortoo.snode.rpc`
and `app` may import this room.
"""
