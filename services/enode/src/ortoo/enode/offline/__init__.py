"""Tools for a store without its server: inspect, repair, back up, restore.

They take a folder, and return lines about its contents, steps of a repair, or a copy. Only the command line runs them.
"""
