"""How the database of the directory came to be as it is: one file in `versions` for each change, run by Alembic.

There is no way back: a name server refuses a database that a newer one has migrated.
"""
