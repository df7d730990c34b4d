"""Shares membership through Redis or Valkey, so that a snode has all members of each group that has a member at it.

The keys of the store, below a prefix:

* `members/GROUP`: a hash of client id to `NUMBER JSON`
* `groups`: a set
* `versions`: a hash of group to the number of its changes; changes of older snodes are not counted
* `alive`: a sorted set of the incarnations of snodes by the time of their last heartbeat
* `number`: a counter
* `changes`: a channel
* `id`: the identity of this store, which is the first snode's incarnation

The store may lose its content: each snode writes its own members again whenever it connects. A snode reads the groups
that it follows, in parts of limited size. Afterwards it follows the changes, and compares the versions now and then.
Records of groups that no snode follows are examined slowly, in rounds.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ortoo.common.errors.findings import Finding
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.containment import record_contained
from ortoo.common.process.masked_url import mask_url
from ortoo.common.process.retry import Backoff
from ortoo.snode import log_events
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.membership.group_members import GroupMember
from ortoo.snode.membership.redis_url import CALL_TIMEOUT_S, close_client, key_prefix
from ortoo.snode.membership.shared_membership import Key, MembershipChange, SharedMembership
from ortoo.snode.membership.stored_members import StoredMembers, decode_if_readable, with_timeout

EXAMINE_INTERVAL_S = 300.0
"""Pause between two rounds through all records."""
EXAMINE_PAUSE_S = 0.2
"""Pause between two requests of a round."""
COMPARE_INTERVAL_S = 20.0
"""Interval for comparing the versions of groups, in case a change got lost. An emptied store is noticed sooner."""
CONNECT_TIMEOUT_S = 5.0
"""Time for which a starting snode waits for the store."""
WRITTEN_AT_ONCE = 100
"""Maximum of changes in one request to the store."""
_log = get_logger("membership")

_PUBLISH_SCRIPT = """
local known = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[2] == '' then
  if not known or not string.find(known, ARGV[3], 1, true) then return '0' end
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('HINCRBY', KEYS[5], ARGV[4], 1)
  if redis.call('HLEN', KEYS[1]) == 0 then
    redis.call('SREM', KEYS[2], ARGV[4])
    redis.call('HDEL', KEYS[5], ARGV[4])
  end
elseif ARGV[6] == 'heal' and known then
  local other = cjson.decode(string.match(known, ' (.*)$'))
  if other['session_id'] ~= ARGV[3] and other['since_ms'] > tonumber(ARGV[7]) then return '0' end
end
local time = redis.call('TIME')
local number = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('GET', KEYS[3]) or '0')
if number <= last then number = last + 1 end
local text = string.format('%.0f', number)
redis.call('SET', KEYS[3], text)
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[1], text .. ' ' .. ARGV[2])
  redis.call('SADD', KEYS[2], ARGV[4])
  redis.call('HINCRBY', KEYS[5], ARGV[4], 1)
end
redis.call('PUBLISH', KEYS[4], text .. '\\n' .. ARGV[5] .. '\\n' .. ARGV[2])
return text
"""
_HEARTBEAT_SCRIPT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local added = redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - tonumber(ARGV[2])))
redis.call('SETNX', KEYS[2], ARGV[3])
return {1 - added, redis.call('ZRANGE', KEYS[1], 0, -1), redis.call('GET', KEYS[2])}
"""


@dataclass(slots=True, eq=False)
class MembershipStore:
    """One snode's connection to the shared store.

    Concurrency: it belongs to one event loop. Snodes change members at the same time; scripts in the store make each
    change atomic and give it a number.
    Durability: none is needed. Each snode writes its own members again after the store was emptied.
    Errors: none for callers. While the store is unreachable, the last known members stay, and a finding says why.
    """

    runtime: Runtime
    client: Any
    """The result of `redis_client`."""
    membership: SharedMembership
    connected: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set while the store answers."""
    _failures: tuple[type[Exception], ...] = field(init=False)
    _heartbeat_script: Any = field(init=False)
    _stored: StoredMembers = field(init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _unread: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _alive: set[str] = field(default_factory=set, init=False)
    """The incarnations of snodes at the last heartbeat."""
    _grace_until_s: float = field(default=0.0, init=False)
    _store_id: str = field(default="", init=False)
    """The identity that the store had at the last heartbeat. A store that was emptied gets it again."""
    _error: Exception | None = field(default=None, init=False)
    """Why the store was unavailable last."""

    def __post_init__(self) -> None:
        import redis

        self._failures = (redis.RedisError, OSError, TimeoutError)
        self._heartbeat_script = self.client.register_script(_HEARTBEAT_SCRIPT)
        self._stored = StoredMembers(self.client, self._key, self.runtime.clock)
        self.membership.on_unpublished = self._wake.set
        self.membership.on_unread = self._unread.set
        self.membership.read_store, self.membership.read_errors = self._stored.read_all, self._failures

    @property
    def _timeout_s(self) -> float:
        """Timeout after which the members of a silent snode are removed."""
        return self.runtime.settings.membership_timeout_s

    @property
    def identity(self) -> str:
        """The identity of the store, to compare it with that of other snodes; empty while it does not answer."""
        return f"prefix {self.runtime.settings.redis_prefix}, id {self._store_id}" if self.connected.is_set() else ""

    def findings(self) -> Iterator[Finding]:
        """Yield a finding with the reason if the shared store is unavailable."""
        store = f"Redis, the store of groups' members ({mask_url(self.runtime.settings.redis_url)}),"
        if not self.connected.is_set():
            yield Finding(
                "membership store unavailable",
                f"{store} does not serve this snode: {_reason(self._error)}",
                "snodes keep the last known members, and learn no changes of members at other snodes",
                _remedy(self._error),
            )

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Stay connected to the shared store during the block, which begins when the members are read.

        If the store does not answer, the block begins without them.
        """
        running = self.runtime.background.spawn("membership", self._run())
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self.connected.wait()
        except TimeoutError:
            _log.emit(log_events.MEMBERSHIP_STORE_UNAVAILABLE_AT_START)
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])
            await self._leave()

    async def _run(self) -> None:
        """Stay connected for ever, whatever the error: otherwise the process would keep outdated members."""
        backoff, attempt = Backoff(first_s=0.1, max_s=1.0), 0
        while True:
            try:
                await self._run_connection()
            except* self._failures as group:
                self._error = _first_error(group)
                if self.connected.is_set() or attempt == 0:
                    _log.emit(log_events.MEMBERSHIP_STORE_UNAVAILABLE, reason=_reason(self._error))
            except* Exception as group:
                record_contained("membership", group)
            attempt = 0 if self.connected.is_set() else attempt + 1
            self.connected.clear()
            self.membership.on_disconnected()
            await self.runtime.clock.sleep(backoff.delay_s(attempt, self.runtime.randomness))

    async def _run_connection(self) -> None:
        async with contextlib.AsyncExitStack() as parts:
            await with_timeout(self.client.initialize())  # of a cluster: read which node has which keys
            changes: Any = await parts.enter_async_context(self.client.pubsub())
            await with_timeout(changes.subscribe(self._key("changes")))
            # Snodes that were disconnected too return a moment later than this one; their members stay until then.
            self._grace_until_s = self.runtime.clock.monotonic_s() + self._timeout_s
            work = await parts.enter_async_context(Background("membership"))
            # Changes are received during the resynchronisation too: the store disconnects slow readers.
            listening = work.spawn("listen", self._listen(changes))
            await self._heartbeat()
            await self._resync()
            work.spawn("say", self._publish_loop())
            work.spawn("beat", self._heartbeat_loop())
            work.spawn("read", self._read_loop())
            work.spawn("compare", self._compare_loop())
            work.spawn("examine", self._examine_loop())
            _log.emit(log_events.MEMBERSHIP_STORE_AVAILABLE)
            self.membership.on_connected()
            self.connected.set()
            await listening

    async def _listen(self, changes: Any) -> None:
        while True:
            message = await changes.get_message(ignore_subscribe_messages=True, timeout=None)
            if message is not None:
                self._on_message(message["data"])

    async def _resync(self) -> None:
        """Write all own members, then read all followed groups."""
        self.membership.read_all_again()
        await self._publish(list(self.membership.own_members()), is_resync=True)
        while self.membership.unread:
            await self._stored.read_groups(self.membership)

    async def _publish_loop(self) -> None:
        while True:
            self._wake.clear()
            await self._publish(list(self.membership.unpublished.items()))
            if not self.membership.unpublished:
                await self._wake.wait()

    async def _publish(self, changes: Sequence[tuple[Key, MembershipChange]], *, is_resync: bool = False) -> None:
        for first in range(0, len(changes), WRITTEN_AT_ONCE):
            part = changes[first : first + WRITTEN_AT_ONCE]
            numbers = await self._store_changes(part, "heal" if is_resync else "")
            for (key, change), number in zip(part, numbers, strict=True):
                self.membership.on_published(key, change, number)

    async def _store_changes(self, changes: Sequence[tuple[Key, MembershipChange]], mode: str = "") -> list[int]:
        """Write members or departures; returns the number of each record, or 0 if the store did not accept it."""
        async with self.client.pipeline(transaction=False) as pipeline:
            for (group, client_id), change in changes:
                if isinstance(change, str):
                    session_id, text, since_ms = change, "", 0
                else:
                    session_id, text, since_ms = change.session_id, change.encode(), change.since_ms
                keys = [self._key(f"members/{group}"), *map(self._key, ("groups", "number", "changes", "versions"))]
                args = (client_id, text, session_id, group, json.dumps([group, client_id]), mode, since_ms)
                # The whole text: a pipeline of a cluster cannot load scripts.
                pipeline.eval(_PUBLISH_SCRIPT, len(keys), *keys, *args)
            return list(map(int, await with_timeout(pipeline.execute())))

    async def _heartbeat_loop(self) -> None:
        while True:
            await self.runtime.clock.sleep(self._timeout_s / 3)
            known, alive = await self._heartbeat()
            if not known:
                _log.emit(log_events.MEMBERSHIP_STORE_LOST_SNODE)
                self._grace_until_s = self.runtime.clock.monotonic_s() + self._timeout_s
                await self._publish(list(self.membership.own_members()), is_resync=True)
                self.membership.read_all_again()
            if self._is_grace_over():
                await self._remove_dead(self.membership.members_of_dead_snodes(alive))

    def _is_grace_over(self) -> bool:
        return self.runtime.clock.monotonic_s() >= self._grace_until_s

    async def _remove_dead(self, dead: Sequence[tuple[Key, GroupMember]]) -> None:
        for first in range(0, len(dead), WRITTEN_AT_ONCE):
            part = dead[first : first + WRITTEN_AT_ONCE]
            for key, member in part:
                _log.emit(log_events.SNODE_EXPIRED, snode=member.snode, group=key[0])
            await self._store_changes([(key, member.session_id) for key, member in part])
            for key, member in part:
                self.membership.remove_dead(key, member.session_id)

    async def _heartbeat(self) -> tuple[bool, set[str]]:
        """Write a heartbeat; returns whether the store had this snode as alive, and all alive incarnations."""
        incarnation = self.runtime.incarnation
        result = self._heartbeat_script(
            keys=[self._key("alive"), self._key("id")],
            args=[incarnation, int(self._timeout_s * 1000), self._store_id or incarnation],
        )
        known, alive, self._store_id = await with_timeout(result)
        self._alive = set(alive)
        return bool(known), self._alive

    async def _read_loop(self) -> None:
        while True:
            self._unread.clear()
            await self._stored.read_groups(self.membership)
            if not self.membership.unread:
                await self._unread.wait()

    async def _compare_loop(self) -> None:
        while True:
            await self.runtime.clock.sleep(COMPARE_INTERVAL_S)
            self.membership.forget_unused()
            await self._stored.compare_versions(self.membership)

    async def _examine_loop(self) -> None:
        await self.runtime.clock.sleep(self._timeout_s)
        while True:
            await self._examine()
            await self.runtime.clock.sleep(EXAMINE_INTERVAL_S)

    async def _examine(self) -> None:
        """Remove records that no other work finds: of dead snodes, and of own members that the store got back."""
        others_alive = self._alive - {self.runtime.incarnation}
        async for part in self._stored.read_all(EXAMINE_PAUSE_S, others_alive):
            suspects: list[tuple[Key, GroupMember]] = []
            for group, member in part:
                key = (group, member.client_id)
                if self.membership.is_ghost(key, member):
                    self.membership.withdraw(key, member)
                elif self._is_grace_over() and member.incarnation not in self._alive:
                    suspects.append((key, member))
            if suspects:
                # A snode is alive before it stores members. So one that started since the heartbeat is found now.
                alive = set(await with_timeout(self.client.zrange(self._key("alive"), 0, -1)))
                if self.runtime.incarnation in alive:  # otherwise the store was emptied
                    await self._remove_dead([one for one in suspects if one[1].incarnation not in alive])

    def _on_message(self, text: str) -> None:
        number, head, payload = text.split("\n", 2)
        group, client_id = json.loads(head)
        if not self.membership.follows(group):
            return
        member = decode_if_readable(payload) if payload else None
        if member is not None or not payload:
            self.membership.on_record((group, client_id), int(number), member)

    async def _leave(self) -> None:
        """Write the remaining records, and that this snode has left."""
        with contextlib.suppress(*self._failures):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._publish(list(self.membership.unpublished.items()))
                await self.client.zrem(self._key("alive"), self.runtime.incarnation)
        with contextlib.suppress(*self._failures):
            await close_client(self.client)

    def _key(self, name: str) -> str:
        settings = self.runtime.settings
        return f"{key_prefix(settings.redis_url, settings.redis_prefix)}/{name}"


def _first_error(group: BaseExceptionGroup[Exception]) -> Exception:
    first = group.exceptions[0]
    return _first_error(first) if isinstance(first, BaseExceptionGroup) else first


def _reason(error: Exception | None) -> str:
    """Why the store is unavailable, in a finding and in the log."""
    if error is None:
        return "it has not answered since the start"
    if _is_timeout(error):
        return f"it does not answer within {CALL_TIMEOUT_S:.0f} s"
    return str(error) or type(error).__name__


def _remedy(error: Exception | None) -> str:
    import redis

    if isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError):
        return "correct the user and the password in redis_url, or the rights of the user, then restart this snode"
    if isinstance(error, redis.ResponseError):
        return "check that redis_url is the address of a Redis or Valkey that accepts writes, and its log"
    if error is not None and _is_timeout(error):
        return "start Redis if it does not run; otherwise check its processor time, its machine and the network"
    return "start Redis, or check its log and the network; snodes reconnect automatically, and it needs no backup"


def _is_timeout(error: Exception) -> bool:
    import redis

    return isinstance(error, TimeoutError | redis.TimeoutError)
