"""Alembic's environment: it runs on the connection that the name server passes."""

from alembic import context

from ortoo.namesrv.catalog.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
