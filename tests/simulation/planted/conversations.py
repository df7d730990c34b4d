"""Planted: failures that spread, absence taken for evidence, and partial execution of requests."""

import asyncio
from typing import Any

from apache.rocketmq.v2.definition_pb2 import Code
from ortoo.common.errors import Invalid
from ortoo.common.groups import handle_seal
from ortoo.common.process import background, containment
from ortoo.enode.changes.kinds import OffsetsCommitted
from ortoo.enode.cluster import topic_copies
from ortoo.enode.pops import lines
from ortoo.enode.rpc.streams import append
from ortoo.enode.store import engine
from ortoo.namesrv.directory import watches
from ortoo.snode.enodes import queue_locks
from ortoo.snode.membership import store as membership_store
from ortoo.snode.membership import stored_members
from ortoo.snode.pull import lag
from ortoo.snode.push import flow
from ortoo.snode.push import session as push_session
from ortoo.snode.rocketmq.presence import telemetry
from ortoo.snode.rocketmq.receive import settlement
from ortoo.snode.send import publisher


def an_enode_away_ends_the_snode() -> None:
    """Containment: a snode that cannot attach to an enode ends."""

    async def stay(self: Any, enode: str) -> None:
        while True:
            await self.links.to(enode).attach(self.runtime.settings.name, self.runtime.incarnation, lambda _: None)
            await self.runtime.clock.sleep(0.1)

    async def look(self: Any, changed: Any) -> None:
        for entry in changed:
            if entry.name not in self._attached:
                self._attached.add(entry.name)
                self.runtime.background.spawn("attach", stay(self, entry.name))

    queue_locks.SessionQueueLocks.attach_new_enodes = look  # type: ignore[method-assign]


def a_client_that_does_not_read_ends_the_snode() -> None:
    """Containment: an error in a client's telemetry stream ends the process's own group of tasks.

    Without the scope alone nothing is lost: each stream catches its own errors, and a scope catches the rest.
    """

    async def run(self: Any, work: Any) -> object:
        return await work

    async def listen(self: Any, caller: Any, requests: Any, stream: Any, scope: Any) -> None:
        async for request in requests:
            await self._on_request(caller, request, stream, scope)
        stream.end()

    containment.Scope._run = run  # type: ignore[method-assign]
    telemetry.TelemetryActivity._listen = listen  # type: ignore[method-assign]


def one_bad_receipt_refuses_all() -> None:
    """Containment: all acknowledgements of a request get the answer to the forged receipt among them."""
    ack = settlement.SettlementActivity.ack

    async def together(self: Any, caller: Any, request: Any) -> Any:
        answer = await ack(self, caller, request)
        bad = [entry.status for entry in answer.entries if entry.status.code != Code.OK]
        for entry in answer.entries if bad else ():
            entry.status.CopyFrom(bad[0])
        return answer

    settlement.SettlementActivity.ack = together  # type: ignore[method-assign]


def seals_are_not_checked() -> None:
    """Permissions: a handle with any seal is valid."""

    def good(self: Any, purpose: bytes, data: bytes, seal: bytes) -> bool:
        return True

    handle_seal.HandleSeals.is_sealed = good  # type: ignore[method-assign]


def an_identified_send_ends_the_snode() -> None:
    """Containment: the snode ends when an enode does not answer a send with a dedup id."""
    asked = background.Background.start_future

    def spawned(self: Any, name: str, work: Any) -> Any:
        if not name.startswith("publish "):
            return asked(self, name, work)
        outcome = asyncio.get_running_loop().create_future()

        async def run() -> None:
            outcome.set_result(await work)

        self.spawn(name, run())
        return outcome

    background.Background.start_future = spawned  # type: ignore[method-assign]


def an_emptied_membership_store_is_trusted() -> None:
    """Evidence: a snode whose entry in the membership store is lost treats all other snodes as ended.

    An empty store alone does no harm: each snode keeps its knowledge of the others, and changes are announced.
    """
    beat = membership_store.MembershipStore._heartbeat

    async def credulous(self: Any) -> tuple[bool, set[str]]:
        _, alive = await beat(self)
        return True, alive

    async def nothing(self: Any, membership: Any) -> None:
        """Neither report nor ask."""

    membership_store.MembershipStore._heartbeat = credulous  # type: ignore[method-assign]
    stored_members.StoredMembers.compare_versions = nothing  # type: ignore[method-assign]


def credit_is_not_charged() -> None:
    """Budgets: a push session ignores its client's credit."""

    def charge(self: Any, messages: int, size_bytes: int) -> None:
        """Charge nothing."""

    flow.Credit.charge = charge  # type: ignore[method-assign]


def a_part_of_a_request_is_stored() -> None:
    """All or nothing: a request that commits offsets of several queues leaves out the last queue."""
    store = engine.Engine.store

    async def some(self: Any, changes: Any, *more: Any) -> None:
        offsets = [change for change in changes if isinstance(change, OffsetsCommitted)]
        left_out = offsets[1:][-1:]
        await store(self, [change for change in changes if change not in left_out], *more)

    engine.Engine.store = some  # type: ignore[method-assign,assignment]


def scaled_to_zero_in_an_outage() -> None:
    """Evidence: the backlog of an unreachable enode is not counted for an autoscaler."""

    async def of_available(self: Any, group: str, topic_name: str) -> Any:
        lags, _ = await self.lag_of_available(group, topic_name)
        return lags

    lag.ConsumerLag.lag_of_all = of_available  # type: ignore[method-assign]


def an_empty_directory_is_believed() -> None:
    """Evidence: a starting name server reports no topics at first, and enodes delete theirs."""
    follow = watches.RouteWatchers.watch

    async def hasty(self: Any, start: Any) -> Any:
        is_first = True
        async for change in follow(self, start):
            has_topics = change.topics or change.resumed
            if is_first and has_topics and self.count == 1 and not getattr(self, "hurried", False):
                self.hurried = True
                yield type(change)(change.version, snapshot=True)
            is_first = False
            yield change

    watches.RouteWatchers.watch = hasty  # type: ignore[method-assign,assignment]
    topic_copies.TopicCopies._due_deletions = _gone_without_doubt  # type: ignore[method-assign]


def _gone_without_doubt(self: Any, response: Any) -> set[int]:
    named = {topic.topic_id for topic in response.topics}
    return {copy.topic_id for copy in self._store.topics() if response.snapshot and copy.topic_id not in named}


def refused_and_stored() -> None:
    """All or nothing: sometimes a batch is stored and refused."""
    answer = append._answer

    def late_refusal(request: Any, result: Any) -> Any:
        if getattr(result, "first_offset", 0) % 23 == 7:
            result = Invalid("the batch is refused", field="batch.records")
        return answer(request, result)

    append._answer = late_refusal


def ended_sessions_stay_members() -> None:
    """Groups: a client whose session ends stays a group member, and keeps its queues forever."""

    def nothing(self: Any, member: Any) -> None:
        """Notify no client."""

    push_session.PushSession.leave_group = nothing  # type: ignore[method-assign]


def a_change_of_the_routes_is_lost() -> None:
    """Watches: each process that watches the routes skips some changes."""
    follow = watches.RouteWatchers.watch

    async def hasty(self: Any, start: Any) -> Any:
        number = 0
        async for change in follow(self, start):
            number += 1
            if change.snapshot or change.resumed or number % 4:
                yield change

    watches.RouteWatchers.watch = hasty  # type: ignore[method-assign,assignment]


def a_task_is_left_behind() -> None:
    """Tasks: each push session leaves a task without an owner."""
    init = push_session.PushSession.__init__

    def leaking(self: Any, *arguments: Any) -> None:
        init(self, *arguments)
        self.left = asyncio.get_running_loop().create_task(asyncio.Event().wait(), name="forgotten")

    push_session.PushSession.__init__ = leaking  # type: ignore[method-assign,assignment]


def a_stop_hangs() -> None:
    """Stops: an enode with consumers that pop never ends."""

    async def close(self: Any) -> None:
        if self._groups:
            await asyncio.Event().wait()

    lines.PopLines.close = close  # type: ignore[method-assign]


def receipts_of_others() -> None:
    """Receipts: in a request with several messages, the receipt of the second one has the offset of the first."""
    real = publisher.make_receipt

    def mixed(topic: Any, to: Any, message: Any, offset: int, **how: Any) -> Any:
        return real(topic, to, message, offset - offset % 2, **how)

    publisher.make_receipt = mixed  # type: ignore[assignment]
