"""The maximum number of elements of every repeated field that a request of any role can carry.

The limits bound the work that one request causes before its handler sees it. A handler may allow less. A method whose
request has a repeated field that is missing here is not served: `RequestShape` raises KeyError. A test compares this
table with the protobuf descriptors.
"""

from collections.abc import Mapping
from typing import Final

SHORT: Final = 1_024
"""For lists of settings (retry delays, columns, enodes, zones), and for topics to describe."""
MESSAGES: Final = 4_096
"""For messages and values of one message; it is the maximum number of messages of a batch."""
QUEUES: Final = 16_384
"""For queues, topics, offsets and locks of one client."""
RANGES: Final = 65_536
"""For ranges of offsets and the topics of a group, between a snode and an enode."""

ELEMENTS_MAX: Final[Mapping[str, int]] = {
    "apache.rocketmq.v2.AckMessageRequest.entries": SHORT,
    "apache.rocketmq.v2.CustomizedBackoff.next": SHORT,
    "apache.rocketmq.v2.Endpoints.addresses": SHORT,
    "apache.rocketmq.v2.Message.user_properties": MESSAGES,
    "apache.rocketmq.v2.MessageQueue.accept_message_types": MESSAGES,
    "apache.rocketmq.v2.Publishing.topics": QUEUES,
    "apache.rocketmq.v2.SendMessageRequest.messages": MESSAGES,
    "apache.rocketmq.v2.Subscription.subscriptions": QUEUES,
    "apache.rocketmq.v2.SyncLiteSubscriptionRequest.lite_topic_set": QUEUES,
    "apache.rocketmq.v2.SystemProperties.keys": MESSAGES,
    "externalscaler.ScaledObjectRef.scalerMetadata": SHORT,
    "ortoo.v1.AckRequest.receipts": SHORT,
    "ortoo.v1.AdoptTopicsRequest.names": QUEUES,
    "ortoo.v1.AppendDeduplicatedRequest.ids": MESSAGES,
    "ortoo.v1.AwaitMessagesRequest.queue_ids": QUEUES,
    "ortoo.v1.BeginTransactionRequest.messages": MESSAGES,
    "ortoo.v1.ChangeInvisibleRequest.receipts": SHORT,
    "ortoo.v1.Commit.offsets": QUEUES,
    "ortoo.v1.CommitConsumerOffsetsRequest.offsets": QUEUES,
    "ortoo.v1.CommitOffsetsRequest.offsets": QUEUES,
    "ortoo.v1.CreateTopicRequest.enodes": SHORT,
    "ortoo.v1.DescribeQueuesOfTopicsRequest.topic_ids": SHORT,
    "ortoo.v1.DescribeAccessRequest.groups": SHORT,
    "ortoo.v1.DescribeAccessRequest.topics": SHORT,
    "ortoo.v1.DescribeTopicsRequest.names": SHORT,
    "ortoo.v1.EndLiteTopicsRequest.close": SHORT,
    "ortoo.v1.EndLiteTopicsRequest.delete": SHORT,
    "ortoo.v1.Enode.replicas": SHORT,
    "ortoo.v1.FetchRequest.columns": SHORT,
    "ortoo.v1.GetTopicsRequest.names": SHORT,
    "ortoo.v1.GetTopicsRequest.topic_ids": SHORT,
    "ortoo.v1.LeasePart.ranges": RANGES,
    "ortoo.v1.LeaseReceipt.offsets": QUEUES,
    "ortoo.v1.ListLagSamplesRequest.topic_ids": RANGES,
    "ortoo.v1.LockQueuesRequest.queues": QUEUES,
    "ortoo.v1.MeasureQueuesRequest.queues": SHORT,
    "ortoo.v1.MeasureStoredQueuesRequest.queues": SHORT,
    "ortoo.v1.Message.keys": MESSAGES,
    "ortoo.v1.Message.properties": MESSAGES,
    "ortoo.v1.NackMessagesRequest.offsets": MESSAGES,
    "ortoo.v1.NackRequest.receipts": SHORT,
    "ortoo.v1.OpenSession.configured_queues": QUEUES,
    "ortoo.v1.OpenSession.start_offsets": QUEUES,
    "ortoo.v1.OpenSession.subscriptions": QUEUES,
    "ortoo.v1.OpenSession.zones": SHORT,
    "ortoo.v1.PopQueuesRequest.queue_ids": QUEUES,
    "ortoo.v1.PublishOrder.places": SHORT,
    "ortoo.v1.PublishRequest.messages": MESSAGES,
    "ortoo.v1.PublishRequest.requests": MESSAGES,
    "ortoo.v1.ParkMessagesRequest.offsets": MESSAGES,
    "ortoo.v1.Pushdown.columns": SHORT,
    "ortoo.v1.PutGroupRequest.fields": SHORT,
    "ortoo.v1.QueryConsumerOffsetsRequest.queues": QUEUES,
    "ortoo.v1.QueryOffsetsRequest.queue_ids": QUEUES,
    "ortoo.v1.QueueStarts.starts": QUEUES,
    "ortoo.v1.Redeliver.delays_ms": MESSAGES,
    "ortoo.v1.RegisterConsumer.configured_queues": QUEUES,
    "ortoo.v1.RegisterConsumer.subscriptions": QUEUES,
    "ortoo.v1.RegisterConsumer.zones": SHORT,
    "ortoo.v1.RegisterEnodeRequest.unknown_topics": QUEUES,
    "ortoo.v1.RecordInterruptionsRequest.interruptions": QUEUES,
    "ortoo.v1.ReleaseLocksRequest.requests": QUEUES,
    "ortoo.v1.ReplayStoredRequest.ranges": RANGES,
    "ortoo.v1.ReplicaConfiguration.learners": SHORT,
    "ortoo.v1.ReplicaConfiguration.voters": SHORT,
    "ortoo.v1.ReportReplicaRequest.learners": SHORT,
    "ortoo.v1.ReportReplicaRequest.voters": SHORT,
    "ortoo.v1.RetryMessagesRequest.delays_ms": MESSAGES,
    "ortoo.v1.RetryMessagesRequest.offsets": MESSAGES,
    "ortoo.v1.RetryPolicy.listed_delays_ms": SHORT,
    "ortoo.v1.RunningDescription.properties": MESSAGES,
    "ortoo.v1.RunningDescription.queues": QUEUES,
    "ortoo.v1.SettlePoppedRequest.parts": RANGES,
    "ortoo.v1.Subscribe.subscriptions": QUEUES,
    "ortoo.v1.Suspend.queues": QUEUES,
    "ortoo.v1.TakeLocksRequest.requests": QUEUES,
    "ortoo.v1.TrimQueuesRequest.queues": QUEUES,
    "ortoo.v1.UnlockQueuesRequest.queues": QUEUES,
    "ortoo.v1.UpdateFlowControlRequest.rules": SHORT,
    "ortoo.v1.UpdateSettingsRequest.reset": SHORT,
    "ortoo.v1.UpdateSettingsRequest.values": SHORT,
    "ortoo.v1.UpdateTopicRequest.add_enodes": SHORT,
    "ortoo.v1.WatchHalvesRequest.producer_groups": QUEUES,
}
"""The maximum number of elements, by the full name of the field."""
