"""The gRPC services of apache.rocketmq.v2: each call is decoded, forwarded and answered.

They get clients' calls, and the snode's packages from which the gateway makes its parts. `ortoo.snode.rpc` and `app`
may import this package.
"""
