"""The log events of the Spark connector: name, level, meaning, and the action for the reader of the log."""

from ortoo.common.logs.log_event import retry_warning, warning

MESSAGES_LOST = warning(
    "messages_lost",
    "Stored messages cannot be read any more, so the query skips them.",
    "Read the enode's log about damage or retention.",
)
GROUP_OFFSET_COMMIT_FAILED = warning(
    "group_offset_commit_failed",
    "The offsets of the group that shows the query's progress were not stored.",
    "None. The query keeps its own offsets.",
)
CLUSTER_UNAVAILABLE_RETRYING = retry_warning(
    "cluster_unavailable_retrying",
    "An enode that the query needs does not answer. The query waits for it, at most `unavailableTimeoutMs`.",
    "Start the enode if the event repeats.",
)
INVALID_ROWS_STORED = warning(
    "invalid_rows_stored",
    "Rows cannot be sent as messages, so they were stored in the topic for invalid rows.",
    "Read that topic: each message has a row and the reason. Correct the query.",
)
