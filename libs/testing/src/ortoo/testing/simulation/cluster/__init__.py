"""The machines of a cluster: name servers, enodes, snodes, and machines of clients.

Enters: a world, and the number of each. Leaves: machines that start, stop, are killed and come back. It runs the
product's roles unchanged; only `ortoo.testing.simulation` imports it.
"""
