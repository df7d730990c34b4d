"""The gRPC services of apache.rocketmq.v2: each call is decoded, forwarded and answered.

The services are created from the other packages of the snode. `ortoo.snode.rpc` and `app` may import this package.
"""
