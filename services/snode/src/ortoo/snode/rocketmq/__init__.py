"""The gateway for RocketMQ 5's own protocol: its words in, what the snode does anyway, its words out.

Its rooms, from the door inwards: `rpc`, `presence`, `receive` and `send`, `lite`, `clients`, `protocol`. From outside,
`ortoo.snode.rpc` and `app` may import them.
"""
