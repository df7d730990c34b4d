"""The schema of the directory's database: created if new, migrated if older, refused if newer."""

from pathlib import Path

import sqlalchemy as sa

from ortoo.common.errors import Unsupported
from ortoo.common.logs.logger import get_logger
from ortoo.namesrv import log_events
from ortoo.namesrv.catalog import tables

MIGRATIONS = Path(__file__).parents[1] / "migrations"
HEAD = max(file.name[1:5] for file in (MIGRATIONS / "versions").glob("v*.py"))
"""The newest revision: a script's name begins with v and its revision."""
FIRST = "0001"
LOCK_KEY = 0x6F72746F6F
"""The PostgreSQL advisory lock that keeps two name servers from migrating at the same time."""

_log = get_logger("schema")
_revision = sa.Table("alembic_version", sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True))


def migrate_to_head(engine: sa.Engine, new_id: str) -> None:
    """Migrate the database to the schema HEAD. `new_id` becomes the id of a directory without an id.

    Errors: Unsupported for a newer schema, and the errors of SQLAlchemy.
    """
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK_KEY)))
        else:
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # the driver begins no transaction for changes of the schema
        revision = _detect_revision(connection)
        if revision is None:
            tables.metadata.create_all(connection)
            _revision.create(connection)
            connection.execute(sa.insert(_revision).values(version_num=HEAD))
        elif revision > HEAD:
            raise Unsupported(
                f"the database has schema {revision}, this name server supports {HEAD}; start the newer name server, "
                "or give another database",
                field="database_url",
            )
        elif revision < HEAD:
            _migrate(connection, revision)
        if connection.execute(sa.select(tables.directory.c.id)).one_or_none() is None:
            row = {"id": 1, "schema_version": tables.SCHEMA_VERSION, "version": 0}
            connection.execute(sa.insert(tables.directory).values(row))
        _delete_unused_placement_sets(connection)
        has_none = tables.directory.c.directory_id == ""
        connection.execute(sa.update(tables.directory).where(has_none).values(directory_id=new_id))


def stored_revision(connection: sa.Connection) -> str | None:
    """The schema revision that the database records; None if it records none."""
    if not sa.inspect(connection).has_table(_revision.name):
        return None
    return str(connection.execute(sa.select(_revision.c.version_num)).scalar_one())


def _detect_revision(connection: sa.Connection) -> str | None:
    """The revision of the database; None if the database is empty.

    A database from a version without migrations has no revision; its revision is stored first.
    """
    if (known := stored_revision(connection)) is not None:
        return known
    if not sa.inspect(connection).has_table(tables.directory.name):
        return None
    stored = connection.execute(sa.select(tables.directory.c.schema_version)).scalar_one_or_none()
    if stored is not None and stored > tables.SCHEMA_VERSION:
        raise Unsupported(
            f"the database has schema version {stored}, this name server supports {tables.SCHEMA_VERSION}; "
            "start the newer name server, or give another database",
            field="database_url",
        )
    _revision.create(connection)
    connection.execute(sa.insert(_revision).values(version_num=FIRST))
    return FIRST


def _delete_unused_placement_sets(connection: sa.Connection) -> None:
    """Delete the sets of placements that no topic names. The row with the version is locked, as for every change."""
    connection.execute(sa.update(tables.directory).values(version=tables.directory.c.version))
    named = sa.union(*(sa.select(one.c.placement_set_id) for one in (tables.topics, tables.deleted_topics)))
    sets = tables.placement_sets
    connection.execute(sa.delete(sets).where(sets.c.set_id.not_in(named)))


def _migrate(connection: sa.Connection, revision: str, to: str = HEAD) -> None:
    # The import takes half a second, and most starts do not need it.
    from alembic import command
    from alembic.config import Config

    _log.emit(log_events.DATABASE_MIGRATION_STARTED, revision=revision, to=to)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, to)
