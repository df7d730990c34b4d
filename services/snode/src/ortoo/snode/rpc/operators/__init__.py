"""The services of operators and their tools: AdminService, DeadLetterService and others, and KEDA's interface.

The services answer with data of the name server, the enodes, other snodes and this snode. Only `rpc.services` imports
this package.
"""
