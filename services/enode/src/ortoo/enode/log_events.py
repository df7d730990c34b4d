"""The log events of enodes: name, level, meaning and remedy."""

from ortoo.common.logs.log_event import error, info, warning

STORE_REFUSED = error(
    "store_refused",
    "A name server has another store registered for this enode, or a longer log of its store. The enode accepts no "
    "messages.",
    "Mount the right volume, or correct `data_dir`. If the former store is gone, run `ortoo enode accept-store`. If "
    "the log is shorter, see [older copies](backups.md#older-copies-of-a-store).",
)
DELETED_GROUP_IN_USE = info(
    "deleted_group_in_use",
    "Deleted consumer groups are still used. Their offsets, locks, leases and delivery modes stay.",
    "Stop their consumers, or create the groups again.",
)
GROUP_STATE_DROPPED = warning(
    "group_state_dropped",
    "A group was deleted (`reason` is `deleted`), or was not used for `group_retention_ms` (`silent`). The enode "
    "dropped the group's offsets, locks, leases and delivery mode in a topic.",
    "None if the deletion was intended, or if the group is no longer used.",
)
ROUTE_WATCH_ENDED = info(
    "route_watch_ended",
    "The name server ended the stream of topic changes. The process opens it again.",
    "None.",
)
ORPHANED_TOPICS_FOUND = error(
    "orphaned_topics_found",
    "The store has topics that the name server's directory lacks. The messages stay.",
    "Adopt or delete the topics with `ortoo topic`.",
)
ROUTE_WATCH_FAILED_RETRYING = warning(
    "route_watch_failed_retrying",
    "The name server cannot be reached. The enode serves from its copy of the topics.",
    "Check the name server.",
)
LEADERSHIP_LOST = warning(
    "leadership_lost",
    "This replica is no longer the leader of its replica set.",
    "None after an election or a transfer of leadership.",
)
LEADER_ELECTED = info(
    "leader_elected",
    "This replica became the leader of its replica set.",
    "None.",
)
REPLICA_STATE_MISMATCH = error(
    "replica_state_mismatch",
    "The state of this replica differs from the leader's at the same position.",
    "None at first: the replica opens its log again and computes its state once more. If the event repeats, follow "
    "OrtooDamagedLog in docs/operations/alerts.md, and report the event with its field `tables`.",
)
REPLICATION_READ_FAILED = warning(
    "replication_read_failed",
    "The leader cannot read its log for a follower.",
    "Check the leader's disk.",
)
LOG_WRITE_FAILED = error(
    "log_write_failed",
    "The log cannot be written: the disk is full, or no file descriptor is left. The log is opened again, and the "
    "write is retried.",
    "Free disk space, or raise the limit of open files.",
)
LOG_ACTION_FAILED = warning(
    "log_action_failed",
    "An action of the replication protocol on the log was refused. The replica continues with the next action.",
    "None during an election. Otherwise act on the error in `reason`.",
)
REPLICA_SET_INITIALIZED = info(
    "replica_set_initialized",
    "The replicas of a new replica set agreed to start.",
    "None.",
)
REPLICA_SET_WAITING = warning(
    "replica_set_waiting",
    "A replica of the new replica set cannot be reached yet.",
    "Start the replica or correct its address.",
)
DAMAGED_FRAME_REPAIRED = error(
    "damaged_frame_repaired",
    "A damaged frame of the log was replaced by another replica's copy.",
    "Check the disk if the event repeats.",
)
DAMAGED_FRAME_COPY_MISSING = warning(
    "damaged_frame_copy_missing",
    "A replica could not provide a copy of a damaged frame.",
    "Check the other replicas.",
)
LOG_TRUNCATED = error(
    "log_truncated",
    "Messages that the leader lacks were truncated from this log. They may have been acknowledged in two cases: "
    "`durability` is `leader`, or a disk that had acknowledged them was later emptied or restored.",
    "None if they were not acknowledged. Otherwise read the file that the event names.",
)
DELAYED_READ_FAILED_RETRYING = warning(
    "delayed_read_failed_retrying",
    "Due delayed messages could not be read. The enode retries.",
    "Check the disk if the event repeats.",
)
DELAYED_READ_DEFECT = error(
    "delayed_read_defect",
    "An unexpected error occurred while delayed messages were read.",
    "Report it with the traceback.",
)
DELAYED_MESSAGES_DROPPED = warning(
    "delayed_messages_dropped",
    "The topic of delayed messages was deleted, so the messages were dropped.",
    "None if the deletion was intended.",
)
DELAYED_DELIVERY_FAILED_RETRYING = warning(
    "delayed_delivery_failed_retrying",
    "Due delayed messages could not be delivered. The enode retries.",
    "Check the replica set if the event repeats.",
)
DELAYED_DELIVERY_DEFECT = error(
    "delayed_delivery_defect",
    "An unexpected error occurred while delayed messages were delivered.",
    "Report it with the traceback.",
)
DELAYED_MESSAGES_MOVED = info(
    "delayed_messages_moved",
    "Delayed messages were copied to the end of the log, because retention removes their segment.",
    "None.",
)
DELAYED_MESSAGES_LOST = error(
    "delayed_messages_lost",
    "Damaged delayed messages were lost when retention removed their segment.",
    "Check the disk. Send the messages again if they matter.",
)
SCHEDULE_SEND_FAILED_RETRYING = warning(
    "schedule_send_failed_retrying",
    "Due messages of a schedule could not be stored. The enode retries.",
    "Check the replica set if the event repeats.",
)
TRANSACTION_PARKED = warning(
    "transaction_parked",
    "No producer ended a transaction within `transaction_checks_max` checks. The transaction is parked: the enode no "
    "longer checks it.",
    "Look at the producer group. Then commit or roll back the transaction, or resume its checks, with `ortoo tx`.",
)
TRANSACTION_CHECK_FAILED_RETRYING = warning(
    "transaction_check_failed_retrying",
    "A transaction could not be checked. The enode retries.",
    "Check the producer group if the event repeats.",
)
TRANSACTION_MESSAGES_LOST = error(
    "transaction_messages_lost",
    "The messages of a transaction are damaged, so the transaction can only be rolled back.",
    "Check the disk. Send the messages again if they matter.",
)
WAITING_MESSAGE_UNREADABLE = error(
    "waiting_message_unreadable",
    "A delayed message, or a message of an open transaction, cannot be read.",
    "Check the disk.",
)
RETENTION_PASSED_GROUP = warning(
    "retention_passed_group",
    "Retention removed messages that a group had not consumed.",
    "Raise the retention, or make the group faster.",
)
RETENTION_DELETED_UNREAD = warning(
    "retention_deleted_unread",
    "Retention deleted messages that a group had not finished.",
    "Raise the retention, or make the group faster.",
)
PARKING_FAILED_RETRYING = warning(
    "parking_failed_retrying",
    "Messages could not be copied to the dead-letter topic. The enode retries.",
    "Check the dead-letter topic.",
)
MESSAGES_LOST_TO_GROUP = error(
    "messages_lost_to_group",
    "Messages cannot be read, so the group skips them.",
    "Check the disk. Restore the messages from their source if they matter.",
)
SEGMENT_DELETE_FAILED = warning(
    "segment_delete_failed",
    "A segment that retention dropped could not be deleted. The enode retries at its next start.",
    "Check the permissions of the folder.",
)
DISK_LOST_DATA = error(
    "disk_lost_data",
    "This replica's disk lacks data that it had acknowledged. The replica cannot lead until it has received the data "
    "again.",
    "Follow the remedy in the event.",
)
LOG_REOPENED = warning(
    "log_reopened",
    "The log was closed after a failure and is opened again.",
    "Act on the error in `reason`.",
)
FORCED_RECOVERY_FAILED = error(
    "forced_recovery_failed",
    "The recovery from a lost majority could not be completed. The replica serves no clients.",
    "Act on the error in `reason`.",
)
STORE_WRITABLE = info(
    "store_writable",
    "The enode accepts messages again.",
    "None.",
)
STORE_READ_ONLY = error(
    "store_read_only",
    "The enode rejects messages: the disk is full, or the store failed.",
    "Act on the error in `reason`: free disk space, or restart after the repair.",
)
REPLICA_REACHABLE = info(
    "replica_reachable",
    "Another replica answers again.",
    "None.",
)
REPLICA_UNREACHABLE_RETRYING = warning(
    "replica_unreachable_retrying",
    "Another replica does not answer. This replica retries.",
    "Check the replica and the network.",
)
REPLICA_REPORT_FAILED_RETRYING = warning(
    "replica_report_failed_retrying",
    "A name server does not accept this replica's reports. The replica retries.",
    "Act on the error in `reason`.",
)
STORE_OPENED = info(
    "store_opened",
    "The store was opened.",
    "None. `clean` is true after a graceful stop. `truncated_bytes` is the length of an unacknowledged tail that was "
    "truncated. If the file is that of a deleted segment, bytes of one old frame may count, too.",
)
FOREIGN_SEGMENT_IGNORED = error(
    "foreign_segment_ignored",
    "A file has the name of a segment, but its content is no segment. The enode ignores the file.",
    "Move the file out of the folder.",
)
SEGMENT_TRUNCATED_OUTSIDE = error(
    "segment_truncated_outside",
    "The file of the last segment is shorter than the enode left it. The enode continues after the data that is left.",
    "Find out which process shortened the file. Restore a backup if the messages matter.",
)
LOG_DAMAGED = error(
    "log_damaged",
    "A part of the log is damaged, and reads of this part fail.",
    "Check the disk. Repair from a replica or a backup.",
)
STORE_CLOSE_FAILED = warning(
    "store_close_failed",
    "The store could not be closed cleanly. The next start scans the log.",
    "Check the disk.",
)
OFFSETS_SKIPPED_AFTER_DAMAGE = error(
    "offsets_skipped_after_damage",
    "A part of the log is damaged. New messages skip offsets that lost messages may have had.",
    "None. Consumers see a gap.",
)
GROUP_OFFSET_RESET_BACKWARD = warning(
    "group_offset_reset_backward",
    "A consumer committed an offset below the stored one. Resets by operators are not logged here.",
    "None if the application did so on purpose.",
)
INDEX_NEARLY_FULL = warning(
    "index_nearly_full",
    "The index of queues by segment is nearly at its limit.",
    "Delete unused topics, make segments larger, shorten the retention, or raise `store.index_bytes_max`.",
)
HOUSEKEEPING_POSTPONED = warning(
    "housekeeping_postponed",
    "A step of housekeeping failed, for example because the disk is full, and is retried. The failure of a step is "
    "logged at most every 10 s.",
    "Act on the error in `reason`. `store_read_only` follows when a full disk stops sends.",
)
HOUSEKEEPING_FAILED = error(
    "housekeeping_failed",
    "A step of housekeeping failed with an unexpected error.",
    "Report it with the traceback.",
)
CLOCK_STEPPED_FORWARD = error(
    "clock_stepped_forward",
    "The wall clock jumped forward. Retention by age ignores the jump for one day.",
    "Check the time synchronization.",
)
HARD_STATE_POSTPONED = error(
    "hard_state_postponed",
    "The replica cannot write the file of its vote, because the disk is full or no file descriptor is left. It does "
    "not vote, and retries.",
    "Free space on the disk. For descriptors, raise the limit of open files or close connections.",
)
TOPIC_TRIMMED = info(
    "topic_trimmed",
    "Messages of a topic became unreadable, because an operator trimmed or purged the topic.",
    "None. The log of the snode names the operator (`topic_trim_requested`).",
)
