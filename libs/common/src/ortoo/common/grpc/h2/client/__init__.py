"""The client side of the transport `h2`: streams in both directions to other processes of the cluster.

It gives callers channels, and takes the ends of connections from the package above.
"""
