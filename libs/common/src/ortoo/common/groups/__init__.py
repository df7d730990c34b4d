"""What everybody computes alike about groups and queues: members, queues and texts in; shares, delays, handles out.

Pure, plain values; for clients and servers.
"""
