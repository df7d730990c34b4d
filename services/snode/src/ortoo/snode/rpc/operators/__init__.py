"""What operators and their tools call: AdminService, DeadLetterService, and the autoscaler's interface.

In come their calls; out goes what the name server, the enodes, other snodes and this one answer. `rpc.services` alone
may import this room.
"""
