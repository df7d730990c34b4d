"""apache.rocketmq.v2 on the wire: each call read, passed on, answered in the protocol's words."""
