"""How the database of the directory came to be as it is: one file in `versions` for each change, run by Alembic."""
