"""The log events of snodes: name, level, meaning and remedy."""

from ortoo.common.logs.log_event import debug, error, info, warning

SESSION_CLIENT_ID_CHANGED = warning(
    "session_client_id_changed",
    "A client changed its id within a session. The snode removed the registrations under the former id.",
    "Check the client library.",
)
ROUTE_WATCH_ENDED = info(
    "route_watch_ended",
    "The name server ended the stream of topic changes. The process opens it again.",
    "None.",
)
ROUTE_WATCH_FAILED_RETRYING = warning(
    "route_watch_failed_retrying",
    "The name server cannot be reached. The snode serves from its copy of the routes.",
    "Check the name server.",
)
INTERRUPTING_MESSAGE_PARKED = warning(
    "interrupting_message_parked",
    "The sessions of several consumers ended while they had this message. The message is in the dead-letter topic.",
    "Look for crashes of the consumers. `ortoo dlq` shows the message.",
)
PARK_FAILED = warning(
    "park_failed",
    "A message that ended the sessions of its consumers could not be parked. It is delivered again.",
    "Correct what the reason names.",
)
QUEUE_LOCK_RELEASE_FAILED = warning(
    "queue_lock_release_failed",
    "Queue locks could not be released. They expire automatically.",
    "None.",
)
ENODE_ATTACH_FAILED_RETRYING = info(
    "enode_attach_failed_retrying",
    "The stream that keeps the snode's queue locks on an enode broke, or could not be opened. The snode retries.",
    "Check the enode if the event repeats.",
)
ENODE_REQUESTS_FAILED = warning(
    "enode_requests_failed",
    "The stream to an enode broke, so all unanswered requests in this stream failed. Clients retry.",
    "Check the enode if the event repeats.",
)
MEMBERSHIP_STORE_AVAILABLE = info(
    "membership_store_available",
    "The membership store answers again.",
    "None.",
)
MEMBERSHIP_RECORD_INVALID = warning(
    "membership_record_invalid",
    "A record of the membership store cannot be decoded. The snode ignores it.",
    "Check whether another application writes to the same Redis prefix.",
)
MEMBERSHIP_STORE_UNAVAILABLE_AT_START = error(
    "membership_store_unavailable_at_start",
    "The membership store does not answer. The snode knows only the group members of its own sessions.",
    "Start Redis or correct its address.",
)
MEMBERSHIP_STORE_LOST_SNODE = warning(
    "membership_store_lost_snode",
    "The membership store lost the records of this snode. The snode writes them again.",
    "Check whether Redis restarted or evicts keys.",
)
SNODE_EXPIRED = warning(
    "snode_expired",
    "Another snode stopped refreshing its records. Its group members were removed.",
    "Check that snode if it was not stopped.",
)
MEMBERSHIP_STORE_UNAVAILABLE = error(
    "membership_store_unavailable",
    "The membership store does not answer. The snode keeps the last known group members.",
    "Check Redis.",
)
TRACE_RECORDS_DROPPED = warning(
    "trace_records_dropped",
    "Records of the trace topic could not be stored and are dropped.",
    "Check the enode of the trace topic.",
)
POLICY_FILE_RELOADED = info(
    "policy_file_reloaded",
    "A changed file of permissions or limits was read.",
    "None.",
)
POLICY_FILE_REJECTED = error(
    "policy_file_rejected",
    "A changed file of permissions or limits has an error. The snode keeps the previous content.",
    "Correct the file.",
)
POLICY_FILE_UNREADABLE = error(
    "policy_file_unreadable",
    "A file of permissions or limits cannot be read. The snode keeps the previous content.",
    "Check the file and its permissions.",
)
DEAD_LETTER_TOPIC_CREATE_FAILED_RETRYING = warning(
    "dead_letter_topic_create_failed_retrying",
    "The dead-letter topic of a group could not be created. The snode retries.",
    "Check the name server.",
)
DAMAGED_MESSAGES_SKIPPED = warning(
    "damaged_messages_skipped",
    "A range of offsets is damaged on the enode's disk and is skipped.",
    "Read the enode's log about damage.",
)
OFFSET_COMMIT_DEFECT = error(
    "offset_commit_defect",
    "An unexpected error occurred while offsets were stored.",
    "Report it with the traceback.",
)
OFFSET_COMMIT_FENCED = info(
    "offset_commit_fenced",
    "The enode rejected offsets because the queue has another consumer now.",
    "None during a rebalance.",
)
OFFSET_COMMIT_REJECTED = warning(
    "offset_commit_rejected",
    "The enode rejected offsets, or did not answer.",
    "Check the enode if the event repeats.",
)
MESSAGES_LOST_TO_GROUP = error(
    "messages_lost_to_group",
    "Messages cannot be read, so the group skips them.",
    "Read the enode's log about damage.",
)
OFFSET_OUT_OF_RANGE = warning(
    "offset_out_of_range",
    "The next offset of a queue is not stored any more. Delivery continues at the nearest stored offset.",
    "Compare the retention with the group's lag.",
)
QUEUE_READ_FAILED_RETRYING = warning(
    "queue_read_failed_retrying",
    "A queue could not be read from its enode. The snode retries.",
    "Check the enode if the event repeats.",
)
QUEUE_DELIVERY_RESTARTED = info(
    "queue_delivery_restarted",
    "The delivery of a queue restarted from its committed offset.",
    "None. Expect some messages again.",
)
COMMIT_TOO_LATE = debug(
    "commit_too_late",
    "A client committed an offset of a queue that it no longer has.",
    "None.",
)
SLOW_CONSUMER_EVICTED = warning(
    "slow_consumer_evicted",
    "A consumer did not commit for too long or read too slowly, so its session was ended.",
    "Make the handler faster, or raise the limits of slow consumers. If the acknowledged offset is the same in each "
    "line, the handler hangs or never acknowledges.",
)
LITE_TOPIC_EXPIRED = info(
    "lite_topic_expired",
    "A lite topic was removed, because it received no message for its time to live.",
    "None.",
)
TRANSACTION_CHECK_SKIPPED = debug(
    "transaction_check_skipped",
    "A transaction check could not be sent to its producer. The check comes again.",
    "None.",
)
BATCH_SEND_DEFECT = error(
    "batch_send_defect",
    "An unexpected error occurred while a batch was sent.",
    "Report it with the traceback.",
)
TRANSACTION_WATCH_FAILED_RETRYING = debug(
    "transaction_watch_failed_retrying",
    "The stream of transaction checks of an enode broke. The snode retries.",
    "Check the enode if the event repeats.",
)
TOPIC_AUTO_CREATED = info(
    "topic_auto_created",
    "A missing topic was created: a client sent to it or looked up its queues, or it is the snode's `trace_topic`.",
    "None if the topic is wanted. `auto_create_topics = false` prevents creation by clients.",
)
GROUP_TOPIC_CREATED = info(
    "group_topic_created",
    "A retry or dead-letter topic of a group was created.",
    "None.",
)
GROUP_SETTINGS_UNAVAILABLE = warning(
    "group_settings_unavailable",
    "The settings of a group could not be read. The defaults apply.",
    "Check the name server if the event repeats.",
)
WORKER_RESTARTED = error(
    "worker_restarted",
    "A worker process ended unexpectedly and is started again.",
    "Read the log lines before this event. Report a crash.",
)
WORKER_START_FAILED = error(
    "worker_start_failed",
    "A worker process could not be started.",
    "Act on the error in `reason`, such as too little memory, or too few file descriptors or processes.",
)
TOPIC_TRIM_REQUESTED = info(
    "topic_trim_requested",
    "An operator made the oldest messages of a topic unreadable. The line names the operator and the target.",
    "None.",
)
