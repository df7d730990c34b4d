"""Tools for the directory's database: backup, and restore into another database.

In: a database. Out: a file, or the reverse. Only the command line runs them.
"""
