"""Calculations about groups and queues that clients and servers must do alike: assignments, delays and handles.

Pure, plain values; for clients and servers.
"""
