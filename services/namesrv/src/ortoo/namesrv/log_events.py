"""The log events of name servers: name, level, meaning, and action of the operator."""

from ortoo.common.logs.log_event import error, info, warning

SECRETS_UNENCRYPTED = warning(
    "secrets_unencrypted",
    "The secrets of users are stored without encryption.",
    "Configure `secrets_key_file`.",
)
DATABASE_UNAVAILABLE_WAITING = error(
    "database_unavailable_waiting",
    "The database does not answer. The name server waits for it.",
    "Start the database or correct its address.",
)
DATABASE_TRANSACTION_RETRIED = warning(
    "database_transaction_retried",
    "A transaction of the directory conflicted with another one and is retried.",
    "None unless the event repeats often.",
)
DATABASE_MIGRATION_STARTED = info(
    "database_migration_started",
    "The schema of the database is migrated to this version.",
    "None.",
)
HANDLE_KEY_ROTATION_FAILED = error(
    "handle_key_rotation_failed",
    "A new key for receipt handles could not be stored. The current keys stay in use.",
    "Check the database.",
)
DATABASE_LOST_CHANGES = error(
    "database_lost_changes",
    "The database has an older version of the directory than this name server served before. The database was "
    "probably restored from a backup.",
    "Compare the directory with the enodes, as docs/operations/directory.md describes.",
)
DATABASE_AVAILABLE = warning(
    "database_available",
    "The database answers again.",
    "None.",
)
DATABASE_READ_FAILED = error(
    "database_read_failed",
    "The database cannot be read. The name server answers from its copy of the directory.",
    "Check the database.",
)
LEADER_ELECTION_PROPOSED = info(
    "leader_election_proposed",
    "The name server proposed a replica as the new leader.",
    "None.",
)
REPLICA_REPORTS_MISSING = warning(
    "replica_reports_missing",
    "Replicas of an enode have stopped reporting. `away` lists their numbers.",
    "Check the replicas and the network.",
)
ELECTION_BLOCKED_BY_DATABASE = error(
    "election_blocked_by_database",
    "Proposals of leaders cannot be stored in the database, so no leader can be elected.",
    "Check the database.",
)
PROCESS_REGISTERED = info(
    "process_registered",
    "A process registered itself: for the first time, after its lease had expired, or with another address.",
    "None.",
)
STORE_ACCEPTED = warning(
    "store_accepted",
    "An operator allowed an enode to come back with another store than the registered one.",
    "None if the change was intended.",
)
ENODE_FORGOTTEN = warning(
    "enode_forgotten",
    "An operator removed an enode that does not come back from all topics.",
    "None if the change was intended.",
)
STORES_NOT_KEPT = error(
    "stores_not_kept",
    "The ids of the enodes' stores cannot be written to or read from the database. The name server uses its copy of "
    "these ids.",
    "Check the database.",
)
PROCESS_EXPIRED = info(
    "process_expired",
    "A process unregistered itself, or stopped renewing its registration.",
    "Check the process if it was not stopped.",
)
