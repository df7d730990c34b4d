"""Calculations about groups and queues that clients and servers must do in the same way: assignments, delays, handles.

Pure, plain values; for clients and servers.
"""
