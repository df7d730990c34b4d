"""Tools for the directory's database: backup, and restore into another database.

Only the command line runs these tools.
"""
