"""The gRPC services of the snode: decode, call, encode.

They serve ortoo.v1, KEDA and, through `ortoo.snode.rocketmq`, apache.rocketmq.v2, with the other packages of the snode.
Only `app` imports this package: `services` makes all servicers, and `layers` has the layers around each call.
"""
