"""Tools for the directory's database: a backup of it, and putting one into another database.

In: a database. Out: a file, or the other way round. Only the command line runs them.
"""
