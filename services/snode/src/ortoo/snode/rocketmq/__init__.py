"""The gateway for RocketMQ 5's own protocol: it translates requests and answers.

Its packages, from the outside inwards: `rpc`, `presence`, `receive` and `send`, `lite`, `clients`, `protocol`. From
outside, `ortoo.snode.rpc` and `app` may import them.
"""
