"""The migrations of the directory's database: one file in `versions` for each change, run by Alembic.

There is no downgrade: a name server refuses a database that a newer one has migrated.
"""
