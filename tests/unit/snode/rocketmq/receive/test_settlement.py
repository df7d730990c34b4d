"""Acks and nacks of RocketMQ's clients, converted to verdicts, and their answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as s
from ortoo.common.errors import OrtooError, Unavailable
from ortoo.common.groups.failure_rule import ATTEMPTS_LIMIT
from ortoo.common.groups.handle_seal import HandleSeals
from ortoo.common.groups.pop import Finish, Redeliver, Renew
from ortoo.snode.membership.group_members import GroupMember
from ortoo.snode.pop.receipt_handle import ReceiptHandle, read_receipt
from ortoo.snode.rocketmq.clients.settings_reply import pop_rules
from ortoo.snode.rocketmq.protocol.caller import Caller
from ortoo.snode.rocketmq.protocol.codes import GrpcProxyError
from ortoo.snode.rocketmq.receive.auto_renewal import AutoRenewedLease, AutoRenewedLeases
from ortoo.snode.rocketmq.receive.settlement import ENTRIES_MAX, SettlementActivity
from ortoo.verification.time.virtual_clock import VirtualClock

SEALS = HandleSeals()
CALLER = Caller("c")
RULES = pop_rules(None)
OVER = "the lease has ended: the message was redelivered or acked"


def handle(offset: int, group: str = "g", topic_id: int = 1) -> ReceiptHandle:
    """The lease of one message."""
    return ReceiptHandle("a", group, topic_id, 0, 7, offset, 1)


def text(offset: int, group: str = "g", topic_id: int = 1) -> str:
    """As a client has it."""
    return handle(offset, group, topic_id).encoded(SEALS)


class Directory:
    """Topics 1 and 2; no group is declared."""

    seals = SEALS

    def topic_name(self, topic_id: int) -> str:
        """By its id."""
        return {1: "t", 2: "u"}.get(topic_id, "")

    def group(self, _: str) -> None:
        """No settings."""


@dataclass
class Members:
    """The consumers at all snodes; none unless the test adds one."""

    pushed: dict[tuple[str, str], bool] = field(default_factory=dict)

    async def find_member(self, group: str, client_id: str) -> GroupMember | None:
        """A member of a group."""
        pushed = self.pushed.get((group, client_id))
        return None if pushed is None else GroupMember(client_id, "session", "snode-1", "i", (), pushed, active=False)


@dataclass
class Pops:
    """Records the verdicts; messages in `over` no longer belong to their lease, those in `failing` fail."""

    over: set[int] = field(default_factory=set)
    failing: dict[int, Exception] = field(default_factory=dict)
    said: list[tuple[ReceiptHandle, Any]] = field(default_factory=list)
    letters: list[ReceiptHandle] = field(default_factory=list)

    async def settle(
        self, receipts: Sequence[tuple[ReceiptHandle, Sequence[int]]], verdict: Any, *, unexpired_only: bool = False
    ) -> list[set[int]]:
        """One message, in time."""
        [(one, offsets)] = receipts
        assert unexpired_only
        assert tuple(offsets) == (one.first_offset,)
        if one.first_offset in self.failing:
            raise self.failing[one.first_offset]
        self.said.append((one, verdict))
        return [{one.first_offset} & self.over]

    def finish_one(self, one: ReceiptHandle, finished: Callable[[bool | OrtooError], None]) -> None:
        """The verdict of an ack; a defect is raised."""
        error = self.failing.get(one.first_offset)
        if error is not None and not isinstance(error, OrtooError):
            raise error
        if error is None:
            self.said.append((one, Finish()))
        finished(error or one.first_offset in self.over)

    async def ensure_dead_letter_topics(self, handles: Sequence[ReceiptHandle]) -> None:
        """They are there."""
        self.letters += handles


def settling() -> tuple[SettlementActivity, Pops, AutoRenewedLeases]:
    """With leases of messages 0 to 9 that are renewed."""
    pops = Pops()
    leases = AutoRenewedLeases(pops, VirtualClock())  # type: ignore[arg-type]
    return SettlementActivity(Directory(), pops, leases, Members()), pops, leases  # type: ignore[arg-type]


def keep(leases: AutoRenewedLeases, *offsets: int) -> None:
    """Lease these to a push consumer."""
    for offset in offsets:
        leases.add(AutoRenewedLease("c", handle(offset), 0.0))


def acks(*texts: str, group: str = "g", topic: str = "t") -> s.AckMessageRequest:
    """Ack these."""
    entries = [s.AckMessageEntry(message_id=f"m{number}", receipt_handle=one) for number, one in enumerate(texts)]
    return s.AckMessageRequest(group=d.Resource(name=group), topic=d.Resource(name=topic), entries=entries)


async def test_each_entry_of_an_acknowledgement_is_answered_by_itself() -> None:
    """Acked, expired, of another group, of another topic, malformed, an unreachable enode, a defect."""
    it, pops, leases = settling()
    keep(leases, 1, 2, 3)
    pops.over, pops.failing = {2}, {3: Unavailable("away"), 4: ValueError("a defect")}
    sent = (
        text(1),
        text(2),
        text(5, group="h"),
        text(6, topic_id=2),
        "nonsense",
        text(3),
        text(4),
        text(9, topic_id=9),
    )
    answer = await it.ack(CALLER, acks(*sent))
    invalid, common = d.INVALID_RECEIPT_HANDLE, d.INTERNAL_SERVER_ERROR
    codes = [d.OK, invalid, invalid, invalid, invalid, d.PROXY_TIMEOUT, common, d.OK]
    assert [entry.status.code for entry in answer.entries] == codes
    assert [entry.message_id for entry in answer.entries] == [f"m{number}" for number in range(8)]
    assert [entry.receipt_handle for entry in answer.entries] == list(sent)
    assert answer.status.code == d.MULTIPLE_RESULTS
    words = [entry.status.message for entry in answer.entries]
    assert words[:3] == [
        "OK",
        f"INVALID_RECEIPT_HANDLE: {OVER}",
        "INVALID_RECEIPT_HANDLE: the handle belongs to another group than g",
    ]
    assert "does not belong to topic t" in words[3]
    assert pops.said == [(handle(1), Finish()), (handle(2), Finish()), (handle(9, topic_id=9), Finish())]
    assert [leases.remove(handle(offset)) for offset in (1, 2, 3)] == [False, True, True]


@pytest.mark.parametrize(("offset", "code"), [(1, d.OK), (2, d.INVALID_RECEIPT_HANDLE), (3, d.PROXY_TIMEOUT)])
async def test_one_entry_is_acked_without_a_task(offset: int, code: d.Code.ValueType) -> None:
    """The answer is that of `ack`; several entries are left to it."""
    it, pops, leases = settling()
    keep(leases, 1, 2, 3)
    pops.over, pops.failing = {2}, {3: Unavailable("away")}
    answers: list[s.AckMessageResponse] = []
    assert it.start_ack(CALLER, acks(text(offset)), answers.append)
    assert [[one.status.code for one in answer.entries] for answer in answers] == [[code]]
    assert answers == [await it.ack(CALLER, acks(text(offset)))]
    assert leases.remove(handle(offset)) == (code != d.OK)
    for entries in ((), (text(1), text(2))):
        assert not it.start_ack(CALLER, acks(*entries), answers.append)
    with pytest.raises(OrtooError):
        it.start_ack(CALLER, acks(text(1), group="not a name"), answers.append)
    assert len(answers) == 1


@dataclass
class Wait:
    """A call that waits without being made."""

    headers: dict[str, str] = field(default_factory=lambda: {"x-mq-client-id": "c"})
    answers: list[bytes] = field(default_factory=list)
    timeout_s: float | None = None

    def answer(self, answers: Sequence[bytes]) -> None:
        """Keep the answer."""
        self.answers += answers

    def make(self, over: Callable[[], object]) -> None:
        """No ack becomes a call later."""
        raise AssertionError

    def peer(self) -> str:
        """Unknown."""
        return ""

    def auth_context(self) -> dict[str, list[bytes]]:
        """Without TLS."""
        return {}


@pytest.mark.parametrize(("offset", "code"), [(1, d.OK), (2, d.INVALID_RECEIPT_HANDLE), (3, d.PROXY_TIMEOUT)])
async def test_one_entry_is_acked_without_a_call(offset: int, code: d.Code.ValueType) -> None:
    """The answer is that of a call. A header may have the namespace."""
    it, pops, leases = settling()
    keep(leases, 1, 2, 3)
    pops.over, pops.failing = {2}, {3: Unavailable("away")}
    wait, request = Wait(), acks(text(offset))
    assert it.begin_ack(request.SerializeToString(), (), "", wait) is not None
    assert leases.remove(handle(offset)) == (code != d.OK)
    assert wait.answers == [(await it.ack(CALLER, request)).SerializeToString()]
    wait, request = Wait(), acks(text(offset, group="ns%g", topic_id=9))
    assert it.begin_ack(request.SerializeToString(), (), "ns", wait) is not None
    [answer] = map(s.AckMessageResponse.FromString, wait.answers)
    assert answer.status.code == code


async def test_an_unusual_ack_is_a_call() -> None:
    """Which reports what is wrong; nothing was acked before."""
    it, pops, _ = settling()
    pops.failing = {4: ValueError("a defect")}
    for request, headers in (
        (acks(), None),
        (acks(text(1), text(2)), None),
        (acks(text(1)), {}),
        (acks(text(1)), {"x-mq-client-id": " "}),
    ):
        wait = Wait() if headers is None else Wait(headers)
        assert it.begin_ack(request.SerializeToString(), (), "", wait) is None
    for request in (acks("nonsense"), acks(text(1, group="h")), acks(text(1), topic="a b"), acks(text(4))):
        with pytest.raises((OrtooError, GrpcProxyError, ValueError)):
            it.begin_ack(request.SerializeToString(), (), "", Wait())
    assert pops.said == []


async def test_a_caller_that_has_left_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message is acked nevertheless."""
    it, pops, leases = settling()
    keep(leases, 1)
    held: list[Callable[[bool], None]] = []
    monkeypatch.setattr(pops, "finish_one", lambda _, finished: held.append(finished))
    wait = Wait()
    leave = it.begin_ack(acks(text(1)).SerializeToString(), (), "", wait)
    assert leave is not None
    leave()
    held[0](False)
    assert wait.answers == []
    assert not leases.remove(handle(1))


async def test_entries_that_agree_are_answered_together() -> None:
    """A defect has its own error."""
    it, pops, _ = settling()
    assert (await it.ack(CALLER, acks(text(1)))).status.code == d.OK
    pops.failing = {2: ValueError("x")}
    answer = await it.ack(CALLER, acks(text(2)))
    assert "AckMessage" in answer.entries[0].status.message
    assert "ValueError" not in answer.entries[0].status.message


@pytest.mark.parametrize("count", [0, ENTRIES_MAX + 1])
async def test_so_many_entries_one_request_may_have(count: int) -> None:
    """From one to a thousand and some."""
    it, _, _ = settling()
    with pytest.raises(GrpcProxyError, match=f"^{count} entries; give 1 to {ENTRIES_MAX}$") as refused:
        await it.ack(CALLER, acks(*["x"] * count))
    assert refused.value.code == d.BAD_REQUEST
    assert len((await it.ack(CALLER, acks(*["x"] * ENTRIES_MAX))).entries) == ENTRIES_MAX


def change(offset: int, invisible_ms: int, **more: Any) -> s.ChangeInvisibleDurationRequest:
    """Redeliver it after this time."""
    duration = Duration(seconds=invisible_ms // 1000, nanos=invisible_ms % 1000 * 1_000_000)
    return s.ChangeInvisibleDurationRequest(
        group=d.Resource(name="g"), topic=d.Resource(name="t"), receipt_handle=text(offset),
        invisible_duration=duration, **more,
    )  # fmt: skip


def given_back(*delays_ms: int, counts: bool = True) -> Redeliver:
    """A nack by a consumer."""
    return Redeliver(delays_ms, counts, "c", "the consumer failed", rules=RULES)


@pytest.mark.parametrize(
    ("is_pushed", "suspend", "invisible_ms", "verdict"),
    [
        (False, False, 20_000, Renew(20_000)),
        (False, False, 0, given_back(0)),
        (False, True, 20_000, given_back(20_000, counts=False)),
        (True, False, 20_000, given_back()),
        (True, False, 0, given_back()),
        (True, True, 20_000, given_back(20_000, counts=False)),
    ],
)
async def test_a_change_means_what_its_kind_of_consumer_means(
    is_pushed: bool, suspend: bool, invisible_ms: int, verdict: Any
) -> None:
    """A push consumer's listener has failed: the delay is the group's, or the consumer's, without counting."""
    it, pops, leases = settling()
    keep(leases, *([1] if is_pushed else [2]))
    request = change(1, invisible_ms, suspend=suspend)
    answer = await it.change_invisible(CALLER, request)
    assert answer.status.code == d.OK
    assert answer.receipt_handle != request.receipt_handle  # as with RocketMQ
    assert read_receipt(answer.receipt_handle, it.directory.seals) == handle(1)
    assert pops.said == [(handle(1), verdict)]
    assert not leases.remove(handle(1))


@pytest.mark.parametrize(
    ("pushed", "verdict"),
    [
        ({("g", "c"): True}, given_back()),
        ({("g", "c"): False}, Renew(20_000)),
        ({("g", "d"): True, ("h", "c"): True}, Renew(20_000)),
    ],
)
async def test_a_push_consumers_failure_is_one_whichever_snode_gave_the_message(
    pushed: dict[tuple[str, str], bool], verdict: Any
) -> None:
    """Otherwise a lease of another snode would be extended, and renewed there."""
    it, pops, _ = settling()
    it = replace(it, registration=Members(pushed))  # type: ignore[arg-type]
    await it.change_invisible(CALLER, change(1, 20_000))
    assert pops.said == [(handle(1), verdict)]


async def test_a_change_that_cannot_be_is_refused() -> None:
    """Too long, of another group, expired."""
    it, pops, _ = settling()
    with pytest.raises(GrpcProxyError) as refused:
        await it.change_invisible(CALLER, change(1, 13 * 3_600_000))
    assert refused.value.code == d.ILLEGAL_INVISIBLE_TIME
    pops.over = {1}
    with pytest.raises(GrpcProxyError, match=OVER) as refused:
        await it.change_invisible(CALLER, change(1, 1_000))
    assert refused.value.code == d.INVALID_RECEIPT_HANDLE
    request = change(1, 1_000)
    request.group.name = "h"
    with pytest.raises(GrpcProxyError, match="belongs to another group than h"):
        await it.change_invisible(CALLER, request)


def forward(offset: int, attempt: int = 0, **more: Any) -> s.ForwardMessageToDeadLetterQueueRequest:
    """Move it to the dead letters."""
    return s.ForwardMessageToDeadLetterQueueRequest(
        group=d.Resource(name="g"), topic=d.Resource(name="t"), receipt_handle=text(offset),
        delivery_attempt=attempt, max_delivery_attempts=16, **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("attempt", "tried", "is_asked"),
    [(0, 0, True), (-1, 0, True), (15, 15, True), (16, 16, False), (1 << 30, ATTEMPTS_LIMIT, False)],
)
async def test_what_is_given_up_is_parked_because_it_was_asked_for_or_had_all_its_tries(
    attempt: int, tried: int, is_asked: bool
) -> None:
    """The dead-letter topic exists first, and the lease is not renewed after."""
    it, pops, leases = settling()
    keep(leases, 1, 2)
    answer = await it.park(CALLER, forward(1, attempt))
    assert answer.status.code == d.OK
    assert pops.letters == [handle(1)]
    words = f"given up after {tried} of 16 attempts"
    assert pops.said == [(handle(1), Redeliver((0,), True, "c", words, is_asked, RULES, tried))]
    assert (leases.remove(handle(1)), leases.remove(handle(2))) == (False, True)


async def test_a_park_that_fails_leaves_the_lease_to_be_renewed() -> None:
    """The client retries."""
    it, pops, leases = settling()
    keep(leases, 1)
    pops.failing = {1: Unavailable("away")}
    with pytest.raises(Unavailable):
        await it.park(CALLER, forward(1))
    assert leases.remove(handle(1))


async def test_a_park_without_a_handle_is_answered_and_does_nothing() -> None:
    """The C++ client would retry for ever."""
    it, pops, _ = settling()
    request = forward(1)
    request.receipt_handle = ""
    assert (await it.park(CALLER, request)).status.code == d.OK
    assert (pops.said, pops.letters) == ([], [])


@pytest.mark.parametrize("which", ["group", "topic"])
async def test_names_are_checked_whatever_is_said(which: str) -> None:
    """For all three calls."""
    it, _, _ = settling()
    calls: tuple[tuple[Any, Any], ...] = (
        (it.ack, acks("x")),
        (it.change_invisible, change(1, 0)),
        (it.park, forward(1)),
    )
    for call, request in calls:
        getattr(request, which).name = "not a name"
        with pytest.raises(OrtooError) as refused:
            await call(CALLER, request)
        assert which in refused.value.field
