"""SyncLiteSubscription: which lite topics a client wants to receive."""

from dataclasses import dataclass

from apache.rocketmq.v2.definition_pb2 import Code, LiteSubscriptionAction, OffsetOption
from apache.rocketmq.v2.service_pb2 import SyncLiteSubscriptionRequest, SyncLiteSubscriptionResponse
from ortoo.common.process.clock import Clock
from ortoo.snode.cluster.routes import MessageType
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.rocketmq.lite.subscriptions import PER_CLIENT_MAX, LiteSubscriptions
from ortoo.snode.rocketmq.lite.topics import LiteTopics
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import Refused, ok
from ortoo.snode.rocketmq.protocol.names import group_name, stored_topic, topic_name


@dataclass(frozen=True, slots=True)
class LiteSync:
    """Takes what clients say, and makes the lite topics that they want."""

    watch: DirectoryWatch
    subscriptions: LiteSubscriptions
    lite_topics: LiteTopics
    clock: Clock

    async def sync(self, caller: Caller, request: SyncLiteSubscriptionRequest) -> SyncLiteSubscriptionResponse:
        """Take a client's lite topics. Errors: Refused, NotFound, Overloaded, Unavailable; then nothing has changed."""
        group, parent_name = group_name(request.group), topic_name(request.topic)
        names = set(request.lite_topic_set)
        if len(names) > PER_CLIENT_MAX:
            what = f"{len(names)} lite topics at once; at most {PER_CLIENT_MAX} for one client"
            raise Refused(Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, what)
        if request.HasField("offset_option") and not _is_last(request.offset_option):
            what = "only OffsetOption LAST is served: a group goes on where it was, or begins with the first message"
            raise Refused(Code.NOT_IMPLEMENTED, what)
        parent = await self.watch.topic(parent_name)
        if parent.message_type is not MessageType.LITE:
            raise Refused(Code.ILLEGAL_TOPIC, f"topic {parent.name} has no lite topics; create one with `--type lite`")
        self.subscriptions.check_parent(group, parent.name)
        adds = request.action in (LiteSubscriptionAction.PARTIAL_ADD, LiteSubscriptionAction.COMPLETE_ADD)
        for name in sorted(names) if adds else ():
            stored_topic(parent.name, name)
        for name in sorted(names) if adds else ():
            await self.lite_topics.ensure(parent, name)
        now_s = self.clock.monotonic_s()
        known = self.subscriptions.of(caller.client_id, group, parent.name, now_s)
        match request.action:
            case LiteSubscriptionAction.PARTIAL_ADD:
                self.subscriptions.add(known, names, now_s)
            case LiteSubscriptionAction.PARTIAL_REMOVE:
                self.subscriptions.remove(known, names, now_s)
            case LiteSubscriptionAction.COMPLETE_ADD:
                self.subscriptions.replace(known, names, now_s)
            case LiteSubscriptionAction.COMPLETE_REMOVE:
                self.subscriptions.drop(caller.client_id)
            case _:
                raise Refused(Code.BAD_REQUEST, f"{request.action} is no action of a lite subscription")
        return SyncLiteSubscriptionResponse(status=ok())


def _is_last(option: OffsetOption) -> bool:
    return option.WhichOneof("offset_type") == "policy" and option.policy == OffsetOption.LAST
