"""Acks, nacks, changes of invisible time, and dead letters of received messages."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from apache.rocketmq.v2 import service_pb2 as pb
from apache.rocketmq.v2.definition_pb2 import Code, Status
from ortoo.common.errors import OrtooError
from ortoo.common.groups.failure_rule import ATTEMPTS_LIMIT, FailureRule
from ortoo.common.groups.pop import LeaseVerdict, Redeliver, Renew
from ortoo.common.grpc.layers.polls import PollWait
from ortoo.common.grpc.layers.repeats import Key
from ortoo.common.process.containment import as_ortoo_error
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.pop.processor import PopProcessor
from ortoo.snode.pop.receipt_handle import ReceiptHandle, read_receipt
from ortoo.snode.rocketmq.clients.registration import ClientRegistration
from ortoo.snode.rocketmq.clients.settings_reply import pop_rules
from ortoo.snode.rocketmq.protocol.caller import CLIENT_ID, Caller, is_client_id
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError, common_status, ok_status, status_of
from ortoo.snode.rocketmq.protocol.messages import to_ms
from ortoo.snode.rocketmq.protocol.names import check_same_topic, group_name, topic_name
from ortoo.snode.rocketmq.protocol.namespaces import add_namespace
from ortoo.snode.rocketmq.receive.auto_renewal import AutoRenewedLeases
from ortoo.snode.rocketmq.receive.receive_message import check_invisible_duration

ENTRIES_MAX = 1_024


@dataclass(frozen=True, slots=True)
class SettlementActivity:
    """The calls AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue."""

    directory: DirectoryCache
    pop_processor: PopProcessor
    leases: AutoRenewedLeases
    registration: ClientRegistration

    async def ack(self, caller: Caller, request: pb.AckMessageRequest) -> pb.AckMessageResponse:
        """Ack messages; each entry has its own result. Errors: GrpcProxyError."""
        group, topic = group_name(request.group), topic_name(request.topic)
        if not 1 <= len(request.entries) <= ENTRIES_MAX:
            raise GrpcProxyError(Code.BAD_REQUEST, f"{len(request.entries)} entries; give 1 to {ENTRIES_MAX}")
        loop = asyncio.get_running_loop()
        results: list[asyncio.Future[Status]] = [loop.create_future() for _ in request.entries]
        for entry, result in zip(request.entries, results, strict=True):
            self._ack_entry(entry.receipt_handle, group, topic, partial(_set_unless_done, result))
        return _ack_response(request.entries, [await result for result in results])

    def start_ack(
        self, caller: Caller, request: pb.AckMessageRequest, done: Callable[[pb.AckMessageResponse], None]
    ) -> bool:
        """Begin to ack the one message of a usual request, and call `done` at the end; False for other requests.

        Errors: GrpcProxyError, before anything was acked.
        """
        if len(request.entries) != 1:
            return False
        group, topic = group_name(request.group), topic_name(request.topic)
        entries = request.entries

        def finished(status: Status) -> None:
            done(_ack_response(entries, (status,)))

        self._ack_entry(entries[0].receipt_handle, group, topic, finished)
        return True

    def begin_ack(self, data: bytes, _: Key, namespace: str, wait: PollWait) -> Callable[[], None] | None:
        """Begin to ack the one message of a usual request without a call; None if it has to be a call.

        Errors: those of a wrong request, before anything was acked. A call reports them.
        """
        request = pb.AckMessageRequest.FromString(data)
        if len(request.entries) != 1 or not is_client_id(wait.headers.get(CLIENT_ID, "")):
            return None
        add_namespace(request, namespace)
        handle = self._read_handle(
            request.entries[0].receipt_handle, group_name(request.group), topic_name(request.topic)
        )
        has_left = False

        def leave() -> None:
            nonlocal has_left
            has_left = True

        def finished(status: Status) -> None:
            if not has_left:
                wait.answer((_ack_response(request.entries, (status,)).SerializeToString(),))

        self._ack(handle, finished)
        return leave

    def _ack_entry(self, text: str, group: str, topic: str, done: Callable[[Status], None]) -> None:
        """Begin to ack the message of a receipt handle; `done` gets the status."""
        try:
            self._ack(self._read_handle(text, group, topic), done)
        except Exception as error:
            done(_status_of(error))

    def _ack(self, handle: ReceiptHandle, done: Callable[[Status], None]) -> None:
        """Begin to ack a message; `done` gets the status later."""

        def finished(outcome: bool | OrtooError) -> None:
            if isinstance(outcome, OrtooError):
                done(_status_of(outcome))
            elif outcome:
                done(status_of(_lease_ended()))
            else:
                self.leases.remove(handle)
                done(ok_status())

        self.pop_processor.finish_one(handle, finished)

    async def change_invisible(
        self, caller: Caller, request: pb.ChangeInvisibleDurationRequest
    ) -> pb.ChangeInvisibleDurationResponse:
        """Change the time at which a message is delivered again. Errors: GrpcProxyError.

        A push consumer calls this when its listener has failed: the lease ends at once, and after the last attempt the
        message is parked. A simple consumer may still process the message, so its lease is extended.
        """
        group, topic = group_name(request.group), topic_name(request.topic)
        invisible_ms = to_ms(request.invisible_duration)
        check_invisible_duration(invisible_ms, 0)
        handle = self._read_handle(request.receipt_handle, group, topic)
        member = await self.registration.find_member(group, caller.client_id)
        # Another snode may renew the lease; its next renewal finds that the lease has ended.
        is_failure = self.leases.remove(handle) or (member is not None and member.pushed)
        verdict: LeaseVerdict = Renew(invisible_ms)
        if is_failure or request.suspend or not invisible_ms:
            # A push consumer computes the delay from the group's back-off, which some clients misread.
            delays_ms = () if is_failure and not request.suspend else (invisible_ms,)
            rules = pop_rules(self.directory.group(group))
            verdict = Redeliver(delays_ms, not request.suspend, caller.client_id, "the consumer failed", rules=rules)
        await self._settle(handle, verdict)
        new_handle = handle.renewed().encoded(self.directory.seals)
        return pb.ChangeInvisibleDurationResponse(status=ok_status(), receipt_handle=new_handle)

    async def park(
        self, caller: Caller, request: pb.ForwardMessageToDeadLetterQueueRequest
    ) -> pb.ForwardMessageToDeadLetterQueueResponse:
        """Park a message in the dead-letter topic of its group. Errors: GrpcProxyError, Unavailable."""
        group, topic = group_name(request.group), topic_name(request.topic)
        if not request.receipt_handle:
            # The C++ client leaves it out and would retry for ever; its message is delivered again when its lease
            # expires.
            return pb.ForwardMessageToDeadLetterQueueResponse(status=ok_status())
        handle = self._read_handle(request.receipt_handle, group, topic)
        await self.pop_processor.ensure_dead_letter_topics([handle])
        rules = pop_rules(self.directory.group(group))
        attempts = min(max(request.delivery_attempt, 0), ATTEMPTS_LIMIT)
        reason = f"given up after {attempts} of {request.max_delivery_attempts} attempts"
        is_last = FailureRule(rules.attempts_max).is_last(attempts)
        await self._settle(handle, Redeliver((0,), True, caller.client_id, reason, not is_last, rules, attempts))
        self.leases.remove(handle)
        return pb.ForwardMessageToDeadLetterQueueResponse(status=ok_status())

    async def _settle(self, handle: ReceiptHandle, verdict: LeaseVerdict) -> None:
        [stale] = await self.pop_processor.settle([(handle, (handle.first_offset,))], verdict, unexpired_only=True)
        if stale:
            raise _lease_ended()

    def _read_handle(self, text: str, group: str, topic: str) -> ReceiptHandle:
        """Read a handle, which must be of the group and the topic of the request. Errors: GrpcProxyError, Invalid."""
        handle = read_receipt(text, self.directory.seals)
        if handle.group != group:
            raise GrpcProxyError(Code.INVALID_RECEIPT_HANDLE, f"the handle belongs to another group than {group}")
        check_same_topic(topic, self.directory.topic_name(handle.topic_id), group)
        return handle


def _lease_ended() -> GrpcProxyError:
    return GrpcProxyError(Code.INVALID_RECEIPT_HANDLE, "the lease has ended: the message was redelivered or acked")


def _status_of(error: Exception) -> Status:
    return status_of(error if isinstance(error, GrpcProxyError) else as_ortoo_error(error, "AckMessage"))


def _ack_response(entries: Sequence[pb.AckMessageEntry], statuses: Sequence[Status]) -> pb.AckMessageResponse:
    response = pb.AckMessageResponse(status=common_status([one.code for one in statuses]))
    for entry, status in zip(entries, statuses, strict=True):
        response.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
    return response


def _set_unless_done(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():  # its caller may have disconnected
        future.set_result(result)
