"""The services of operators and their tools: AdminService, DeadLetterService and others, and KEDA's interface.

They answer with data of the name server, the enodes, other snodes and this one. Only `rpc.services` imports this
package.
"""
