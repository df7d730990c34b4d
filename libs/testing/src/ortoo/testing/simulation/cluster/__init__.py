"""The machines of a cluster: name servers, enodes, snodes, and those that clients run on.

Enters: a world, and how many of each. Leaves: machines that start, stop, are killed and come back. It opens the
product's roles as they are; only `ortoo.testing.simulation` imports it.
"""
