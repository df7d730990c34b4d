"""What the snode offers on the wire: decode, call, encode.

In come calls of ortoo.v1, of KEDA and, through `ortoo.snode.rocketmq`, of apache.rocketmq.v2; out go the answers of the
snode's rooms. `app` alone may import this room: `services` makes all servicers, `around` what stands around each call.
"""
