"""The log events of the client: name, level, meaning, and the action for the reader of the log."""

from ortoo.common.logs.log_event import error, info, retry_warning, warning

SESSION_BROKEN_RECONNECTING = retry_warning(
    "session_broken_reconnecting",
    "The session with a snode broke. The client opens another one.",
    "Check the snode and the network if the event repeats.",
)
CALL_FAILED_RETRYING = retry_warning(
    "call_failed_retrying",
    "A snode did not answer a call of a program that waits for the cluster, such as a query of Spark. The client "
    "retries.",
    "Check the address and the snode if the event repeats.",
)
SESSION_CLOSED_BY_SNODE = info(
    "session_closed_by_snode",
    "The snode closed the session and gave the reason.",
    "None if the snode shuts down. Otherwise act on the error in `reason`.",
)
SESSION_CLOSE_TIMEOUT = warning(
    "session_close_timeout",
    "The snode did not confirm the end of the session in time.",
    "None. The snode ends the session by its own timeout.",
)
ALLOCATION_STRATEGY_UNKNOWN = warning(
    "allocation_strategy_unknown",
    "A newer group member uses an allocation strategy that this client does not know. The client uses "
    "AVERAGELY instead.",
    "Update this client, or use a strategy that all group members know. Until then two group members may read a queue, "
    "or no group member reads it.",
)
MESSAGES_LOST = error(
    "messages_lost",
    "Stored messages cannot be read any more, so the consumer skips them.",
    "Read the enode's log about damage. Restore the messages from their source if they matter.",
)
ON_LOSS_CALLBACK_FAILED = error(
    "on_loss_callback_failed",
    "The application's callback for lost messages raised an error.",
    "Fix the callback.",
)
OFFSET_LOOKUP_FAILED_RETRYING = retry_warning(
    "offset_lookup_failed_retrying",
    "The offset of a queue could not be read. The client retries.",
    "Check the enode of the queue if the event repeats.",
)
OFFSET_COMMIT_REJECTED = warning(
    "offset_commit_rejected",
    "An offset was rejected by the enode and is not committed.",
    "Expect the messages after the last committed offset again.",
)
HANDLER_FAILED_WILL_REDELIVER = error(
    "handler_failed_will_redeliver",
    "The application's handler raised an error. The message is delivered again.",
    "Fix the handler, or look at the message.",
)
LEASE_RENEWAL_FAILED_RETRYING = retry_warning(
    "lease_renewal_failed_retrying",
    "The leases of messages that a handler is processing could not be renewed. The client retries.",
    "Expect duplicate deliveries if the event repeats until the leases expire.",
)
LATE_REPLY_DROPPED = warning(
    "late_reply_dropped",
    "A reply came after its request had timed out or was cancelled. The client has dropped it.",
    "Make the replier faster, or wait longer with `timeout_s`.",
)
REPLY_FAILED = warning(
    "reply_failed",
    "A handler of a program returned a reply, and the requester did not confirm it in time.",
    "None if the requester has ended. Otherwise check the snodes.",
)
HANDLERS_NOT_FINISHED = warning(
    "handlers_not_finished",
    "The consumer was stopped, and handlers did not finish in time. Their messages are released.",
    "Expect their messages again. Make the handlers faster, or allow more time.",
)
CONSUMER_FAILED_RESTARTING = warning(
    "consumer_failed_restarting",
    "A consumer of a program has failed. It is started again after a delay.",
    "Act on the error in `reason`.",
)
EVENT_LOOP_BLOCKED = warning(
    "event_loop_blocked",
    "A handler blocks the event loop of the client, so that no other task of the program runs. The client renews the "
    "leases of the messages from a thread. `where` has the innermost lines of the stack.",
    "Make the handler a plain function, which runs in a thread, or await instead of blocking.",
)
CANCELLED_POP_RELEASE_FAILED = warning(
    "cancelled_pop_release_failed",
    "Messages of a cancelled pop could not be released.",
    "None. They are delivered again when their leases expire.",
)
HANDLER_LEASE_EXPIRED = warning(
    "handler_lease_expired",
    "A handler took longer than the lease of its message.",
    "Raise the lease duration or make the handler faster.",
)
ACK_FAILED = warning(
    "ack_failed",
    "The ack or nack of a message failed.",
    "Expect the message again when its lease expires.",
)
LEASE_RELEASE_FAILED = warning(
    "lease_release_failed",
    "Leases could not be released while the consumer closed.",
    "None. The messages are delivered again when the leases expire.",
)
POP_FAILED_RETRYING = retry_warning(
    "pop_failed_retrying",
    "A pop failed. The client retries after a delay.",
    "Check the snode if the event repeats.",
)
SEND_FAILED_RETRYING = warning(
    "send_failed_retrying",
    "A send was not acknowledged. The producer retries.",
    "Check the enode of the queue if the event repeats.",
)
ROUTE_LOOKUP_FAILED = retry_warning(
    "route_lookup_failed",
    "The queues of a topic could not be read from a snode, or none of its enodes accepts messages.",
    "Check the snode, the name server and the enodes of the topic if the event repeats.",
)
TRANSACTION_WATCH_RECONNECTING = info(
    "transaction_watch_reconnecting",
    "The stream of transaction checks ended. The producer opens another one.",
    "None.",
)
TRANSACTION_END_FAILED = info(
    "transaction_end_failed",
    "The result of a transaction check was not stored. The check comes again.",
    "None.",
)
TRANSACTION_CHECKER_FAILED = error(
    "transaction_checker_failed",
    "The application's transaction checker raised an error. The check comes again.",
    "Fix the checker.",
)
FINAL_OFFSET_COMMIT_TIMEOUT = warning(
    "final_offset_commit_timeout",
    "No snode confirmed the last offsets while the consumer closed.",
    "Expect some messages again.",
)
QUEUE_LOCK_LOST = warning(
    "queue_lock_lost",
    "The enode no longer confirms the lock of a queue. The consumer stops processing the queue.",
    "None during a rebalance. Otherwise check the network to the enode.",
)
REBALANCE_FAILED_RETRYING = retry_warning(
    "rebalance_failed_retrying",
    "The assignment of queues could not be computed. The client retries.",
    "Check the snode if the event repeats.",
)
BROADCAST_MESSAGE_DROPPED = warning(
    "broadcast_message_dropped",
    "A handler failed for a message of a broadcast. Broadcasts have no redelivery, so the message is dropped.",
    "Fix the handler.",
)
HANDLER_FAILED_QUEUE_PAUSED = error(
    "handler_failed_queue_paused",
    "A handler of an ordered group failed. Its queue pauses until the next attempt.",
    "Fix the handler, or look at the message.",
)
NACK_FAILED_RETRYING_LOCALLY = warning(
    "nack_failed_retrying_locally",
    "A failed message could not be handed to the snode. The client runs the handler on this message again.",
    "Check the snode if the event repeats.",
)
HANDLER_TIMEOUT_MESSAGE_RETRIED = warning(
    "handler_timeout_message_retried",
    "A handler exceeded its timeout. The client nacks the message, so the group receives it again; broadcasts drop it.",
    "Find the reason why the handler blocks.",
)
FINAL_OFFSET_COMMIT_FAILED = warning(
    "final_offset_commit_failed",
    "The offsets of queues that this consumer releases were not stored.",
    "Expect some messages again.",
)
QUEUE_LOCK_REJECTED = retry_warning(
    "queue_lock_rejected",
    "The lock of a queue could not be taken or renewed. Locks that another consumer holds are not logged.",
    "Act on the error in `reason` if the event repeats. The client asks again.",
)
QUEUE_LOCK_RELEASE_FAILED = warning(
    "queue_lock_release_failed",
    "Queue locks could not be released. They expire within a minute.",
    "None.",
)
OFFSET_OUT_OF_RANGE = warning(
    "offset_out_of_range",
    "The next offset of a queue is not stored any more. The consumer continues at the nearest stored offset.",
    "Compare the retention with the consumer's lag.",
)
PULL_THROTTLED = info(
    "pull_throttled",
    "The consumer holds too many messages, so pulling pauses.",
    "Make the handler faster, or add group members.",
)
QUEUE_LOST = warning(
    "queue_lost",
    "The enode gave the queue to another group member, the queue does not exist any more, or its end was lost.",
    "None during a rebalance. If the end of the queue was lost, check the disk of the enode.",
)
PULL_FAILED_RETRYING = retry_warning(
    "pull_failed_retrying",
    "A pull failed. The client retries after a delay.",
    "Check the enode of the queue if the event repeats.",
)
BROADCAST_OFFSET_UNKNOWN = warning(
    "broadcast_offset_unknown",
    "The stored offset of a broadcast could not be read.",
    "Check the offset store of the application.",
)
DAMAGED_MESSAGES_SKIPPED = warning(
    "damaged_messages_skipped",
    "A range of offsets is damaged on the enode's disk and is skipped.",
    "Read the enode's log about damage.",
)
REGISTRATION_REJECTED_RETRYING = retry_warning(
    "registration_rejected_retrying",
    "The snode rejected the registration of a group. The client retries.",
    "Act on the error in `reason`.",
)
