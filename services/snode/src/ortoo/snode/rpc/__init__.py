"""The gRPC services of the snode: decode, call, encode.

The services implement ortoo.v1, KEDA's interface and, through `ortoo.snode.rocketmq`, apache.rocketmq.v2.
Only `app` imports this package: `services` makes all servicers, and `layers` has the layers around each call.
"""
