"""Polls for messages that wait without a call, as those of idle consumers do (`ortoo.common.grpc.layers.polls`)."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, NamedTuple

from apache.rocketmq.v2.definition_pb2 import Code
from apache.rocketmq.v2.service_pb2 import ReceiveMessageRequest, ReceiveMessageResponse
from ortoo.common.directory.topic import MessageType
from ortoo.common.grpc.layers.polls import PollWait
from ortoo.common.grpc.layers.repeats import Key
from ortoo.common.process.clock import Clock
from ortoo.snode.pop.call import PopCall, PopResult
from ortoo.snode.pop.processor import IdlePlaces, PopProcessor
from ortoo.snode.pop.shared_pops import IdlePop
from ortoo.snode.rocketmq.clients.table import ClientTable
from ortoo.snode.rocketmq.protocol.caller import CLIENT_ID, LANGUAGE, VERSION, Caller
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError, status_of
from ortoo.snode.rocketmq.protocol.messages import timestamp
from ortoo.snode.rocketmq.protocol.namespaces import add_namespace
from ortoo.snode.rocketmq.receive.open_polls import OpenPolls
from ortoo.snode.rocketmq.receive.receive_message import ReceiveMessageActivity, beginning

KINDS_MAX: Final = 10_000
"""Maximum of kept kinds of polls."""
KIND_BYTES_MAX: Final = 1 << 10
"""Larger requests, and those with a long namespace, are always calls, which limits the memory of kept kinds."""


class PollKind(NamedTuple):
    """The common part of equal polls of several clients."""

    group: str
    topic: str
    wait_ms: int
    places: IdlePlaces


@lru_cache(maxsize=1_000)
def _no_message(blocked_reason: str) -> bytes:
    text = f"no message: {blocked_reason}" if blocked_reason else "no new message"
    return ReceiveMessageResponse(status=status_of(GrpcProxyError(Code.MESSAGE_NOT_FOUND, text))).SerializeToString()


class IdlePoll:
    """One poll: until its time has ended, its client leaves, its caller disconnects, or messages make it a call."""

    __slots__ = ("_clock", "_has_left", "_idle", "_open", "_pops", "_wait")

    def __init__(self, idle: IdlePop, wait: PollWait, pops: PopProcessor, polls: OpenPolls, clock: Clock) -> None:
        self._idle = idle
        self._wait: PollWait | None = wait
        self._pops = pops
        self._open = polls
        self._clock = clock
        self._has_left = False
        polls.add(idle.call.consumer, self.leave)
        idle.woken.add_done_callback(self._on_woken)

    def stop(self) -> None:
        """End the poll, because its caller has left."""
        self._wait = None
        self._idle.woken.remove_done_callback(self._on_woken)
        self._open.remove(self._idle.call.consumer, self.leave)
        self._pops.stop(self._idle)

    def leave(self) -> None:
        """End the poll without messages, because its client ends gracefully."""
        self._has_left = True
        self._idle.woken.cancel()

    def _on_woken(self, _: "asyncio.Future[None]") -> None:
        wait, self._wait = self._wait, None
        if wait is None:
            return
        idle, result = self._idle, PopResult([])
        self._open.remove(idle.call.consumer, self.leave)
        if self._has_left:
            self._pops.stop(idle)
        elif (expired := self._pops.expire(idle)) is None:
            wait.make(partial(self._pops.end, idle))
            return
        else:
            result = expired
        end = ReceiveMessageResponse(delivery_timestamp=timestamp(self._clock.now_ms()))
        wait.answer((_no_message(result.blocked_reason), end.SerializeToString()))


class IdlePolls:
    """The polls of connected clients whose queues have no messages."""

    def __init__(self, receiving: ReceiveMessageActivity) -> None:
        self._receiving = receiving
        self._pops: PopProcessor = receiving.pop_processor
        self._clients: ClientTable = receiving.clients
        self._open: OpenPolls = receiving.open_polls
        self._clock: Clock = receiving.clock
        self._kinds: OrderedDict[Key, PollKind] = OrderedDict()

    def begin(self, data: bytes, key: Key, namespace: str, wait: PollWait) -> Callable[[], None] | None:
        """Begin a poll; None if it has to be a call. Errors: those of a wrong request."""
        if len(data) + sum(map(len, key)) > KIND_BYTES_MAX:
            return None
        request = ReceiveMessageRequest.FromString(data)
        attempt_id, headers = request.attempt_id, wait.headers
        request.ClearField("attempt_id")
        client_id = headers.get(CLIENT_ID, "").strip()
        client = self._clients.get(client_id)
        if (
            client is None
            or headers.get(LANGUAGE, client.language) != client.language
            or headers.get(VERSION, client.client_version) != client.client_version
        ):
            return None
        kind = self._kind((request.SerializeToString(), *key), request, namespace)
        if kind is None or kind.group != client.group:
            return None
        wait_ms = Caller(client_id, remaining_s=wait.timeout_s).wait_ms(kind.wait_ms)
        receiver = (client_id, kind.group, kind.topic)
        if not wait_ms or receiver in self._receiving.releasing:
            return None
        if attempt_id and self._receiving.unconfirmed.has_attempt(receiver, attempt_id):
            return None
        call = PopCall(kind.group, kind.topic, 1, 0, wait_ms, client_id, attempt_id)
        idle = self._pops.begin(kind.places, call)
        if idle is None:
            return None
        client.last_active_s = self._clock.monotonic_s()
        return IdlePoll(idle, wait, self._pops, self._open, self._clock).stop

    def _kind(self, key: Key, request: ReceiveMessageRequest, namespace: str) -> PollKind | None:
        found = self._kinds.get(key)
        if found is None or not self._pops.are_current(found.places):
            found = self._make(request, namespace)
            if found is None:
                self._kinds.pop(key, None)
                return None
            self._kinds[key] = found
            if len(self._kinds) > KINDS_MAX:
                self._kinds.popitem(last=False)
        return found

    def _make(self, request: ReceiveMessageRequest, namespace: str) -> PollKind | None:
        add_namespace(request, namespace)
        call = self._receiving.pop_of(request)
        from_last = self._receiving.initial_position.known(call.group, call.topic)
        if from_last is None or not call.wait_ms:
            return None
        places = self._pops.idle_places(beginning(call, from_last=from_last))
        if places is None or places.topic.message_type is MessageType.LITE:
            return None
        return PollKind(call.group, call.topic, call.wait_ms, places)  # without the filter, which may be large
