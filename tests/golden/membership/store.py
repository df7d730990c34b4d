"""The store as snodes used it that read all groups, for tests of rolling upgrades.

Shares membership through Redis or Valkey, so that every snode has the members of every group.

The keys of the store, below a prefix:

* `members/GROUP`: a hash of client id to `NUMBER JSON`
* `groups`: a set
* `alive`: a sorted set of the incarnations of snodes by the time of their last heartbeat
* `number`: a counter
* `changes`: a channel
* `id`: the identity of this store, which is the first snode's incarnation

The store may lose its content: each snode writes its own members again whenever it connects.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.errors.findings import Finding
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.background import Background
from ortoo.common.process.containment import record_contained
from ortoo.common.process.masked_url import mask_url
from ortoo.common.process.retry import Backoff
from ortoo.snode import log_events
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.membership.group_members import GroupMember, decode_member
from tests.golden.membership.group_membership import Key, MembershipChange, SharedMembership, StoredMember

CALL_TIMEOUT_S = 2.0
RELOAD_INTERVAL_S = 20.0
"""Interval for reading all members again, in case a change got lost. An emptied store is noticed sooner."""
CONNECT_TIMEOUT_S = 5.0
"""Time for which a starting snode waits for the store."""
BATCH_MAX = 500
"""Maximum of changes written at once."""
_log = get_logger("membership")

_PUBLISH_SCRIPT = """
local known = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[2] == '' then
  if not known or not string.find(known, ARGV[3], 1, true) then return '0' end
  redis.call('HDEL', KEYS[1], ARGV[1])
  if redis.call('HLEN', KEYS[1]) == 0 then redis.call('SREM', KEYS[2], ARGV[4]) end
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


def redis_client(url: str) -> Any:
    """A client of the Redis server at `url`; the caller limits the time of each call. Errors: Invalid for the URL.

    The client has no `socket_timeout`, because redis.asyncio implements it by `asyncio.wait_for`. Up to Python 3.11,
    `wait_for` swallows the cancellation of a call that has just been written. A cancelled task would then not end.
    """
    # It takes a tenth of a second to import, and a single snode does not need it.
    import redis.asyncio

    try:
        parts = urlsplit(url)
        if "@" in parts.path + parts.query + parts.fragment:  # errors would show a part of the password as the host
            raise ValueError("a password with one of / ? #")
        return redis.asyncio.from_url(
            url, socket_timeout=None, socket_connect_timeout=CALL_TIMEOUT_S, decode_responses=True
        )
    except ValueError:  # its text may have parts of the password
        raise Invalid(
            "not a URL of Redis; give one like redis://HOST:6379/0. Write / ? # in passwords as %2F %3F %23",
            field="redis_url",
        ) from None


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
    _publish_script: Any = field(init=False)
    _heartbeat_script: Any = field(init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _grace_until_s: float = field(default=0.0, init=False)
    _store_id: str = field(default="", init=False)
    """The identity that the store had at the last heartbeat. A store that was emptied gets it again."""
    _error: Exception | None = field(default=None, init=False)
    """Why the store was unavailable last."""

    def __post_init__(self) -> None:
        import redis

        self._failures = (redis.RedisError, OSError, TimeoutError)
        self._publish_script = self.client.register_script(_PUBLISH_SCRIPT)
        self._heartbeat_script = self.client.register_script(_HEARTBEAT_SCRIPT)
        self.membership.on_unpublished = self._wake.set

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
            await self.runtime.clock.sleep(backoff.delay_s(attempt, self.runtime.randomness))

    async def _run_connection(self) -> None:
        async with contextlib.AsyncExitStack() as parts:
            changes: Any = await parts.enter_async_context(self.client.pubsub())
            await _with_timeout(changes.subscribe(self._key("changes")))
            # Snodes that were disconnected too return a moment later than this one; their members stay until then.
            self._grace_until_s = self.runtime.clock.monotonic_s() + self._timeout_s
            await self._heartbeat()
            await self._resync()
            work = await parts.enter_async_context(Background("membership"))
            work.spawn("say", self._publish_loop())
            work.spawn("beat", self._heartbeat_loop())
            work.spawn("reload", self._reload_loop())
            _log.emit(log_events.MEMBERSHIP_STORE_AVAILABLE)
            self.connected.set()
            while True:
                message = await changes.get_message(ignore_subscribe_messages=True, timeout=None)
                if message is not None:
                    self._on_message(message["data"])

    async def _resync(self) -> None:
        """Write all own members, then read all members. Members of snodes that have not reconnected yet stay."""
        self.membership.reset_numbers()
        for key, member in self.membership.own_members().items():
            await self._publish(key, member, is_resync=True)
        for key, stored in (await self._read()).items():
            self.membership.apply_stored(key, stored.number, stored.member)

    async def _publish_loop(self) -> None:
        while True:
            self._wake.clear()
            for key, change in list(self.membership.unpublished.items())[:BATCH_MAX]:
                await self._publish(key, change)
            if not self.membership.unpublished:
                await self._wake.wait()

    async def _publish(self, key: Key, change: MembershipChange, *, is_resync: bool = False) -> None:
        self.membership.on_published(key, change, await self._store_change(key, change, "heal" if is_resync else ""))

    async def _store_change(self, key: Key, change: MembershipChange, mode: str = "") -> int:
        """Write a member or its departure; returns the number of the record, or 0 if the store did not accept it."""
        group, client_id = key
        if isinstance(change, str):
            session_id, text, since_ms = change, "", 0
        else:
            session_id, text, since_ms = change.session_id, change.encode(), change.since_ms
        result = self._publish_script(
            keys=[self._key(f"members/{group}"), *map(self._key, ("groups", "number", "changes"))],
            args=[client_id, text, session_id, group, json.dumps([group, client_id]), mode, since_ms],
        )
        return int(await _with_timeout(result))

    async def _heartbeat_loop(self) -> None:
        while True:
            await self.runtime.clock.sleep(self._timeout_s / 3)
            known, alive = await self._heartbeat()
            if not known:
                _log.emit(log_events.MEMBERSHIP_STORE_LOST_SNODE)
                self._grace_until_s = self.runtime.clock.monotonic_s() + self._timeout_s
                await self._reload()
            if self.runtime.clock.monotonic_s() < self._grace_until_s:
                continue
            for key, member in self.membership.members_of_dead_snodes(alive):
                _log.emit(log_events.SNODE_EXPIRED, snode=member.snode, group=key[0])
                await self._store_change(key, member.session_id)
                self.membership.remove_dead(key, member.session_id)

    async def _heartbeat(self) -> tuple[bool, set[str]]:
        """Write a heartbeat; returns whether the store had this snode as alive, and all alive incarnations."""
        incarnation = self.runtime.incarnation
        result = self._heartbeat_script(
            keys=[self._key("alive"), self._key("id")],
            args=[incarnation, int(self._timeout_s * 1000), self._store_id or incarnation],
        )
        known, alive, self._store_id = await _with_timeout(result)
        return bool(known), set(alive)

    async def _reload_loop(self) -> None:
        await self.runtime.clock.sleep(self._timeout_s)
        while True:
            await self._reload()
            await self.runtime.clock.sleep(RELOAD_INTERVAL_S)

    async def _reload(self) -> None:
        numbers_before = self.membership.numbers()
        self.membership.reconcile(await self._read(), numbers_before)

    async def _read(self) -> dict[Key, StoredMember]:
        found: dict[Key, StoredMember] = {}
        groups = sorted(await _with_timeout(self.client.smembers(self._key("groups"))))
        for start in range(0, len(groups), BATCH_MAX):
            part = groups[start : start + BATCH_MAX]
            pipeline = self.client.pipeline(transaction=False)
            for group in part:
                pipeline.hgetall(self._key(f"members/{group}"))
            for group, members in zip(part, await _with_timeout(pipeline.execute()), strict=True):
                for client_id, text in members.items():
                    number, _, payload = text.partition(" ")
                    if (member := _decode_if_readable(payload)) is not None:
                        found[group, client_id] = StoredMember(int(number), member)
        return found

    def _on_message(self, text: str) -> None:
        number, head, payload = text.split("\n", 2)
        group, client_id = json.loads(head)
        member = _decode_if_readable(payload) if payload else None
        if member is not None or not payload:
            self.membership.apply_stored((group, client_id), int(number), member)

    async def _leave(self) -> None:
        """Write the remaining records, and that this snode has left."""
        with contextlib.suppress(*self._failures):
            async with asyncio.timeout(CALL_TIMEOUT_S):
                for key, change in list(self.membership.unpublished.items()):
                    await self._publish(key, change)
                await self.client.zrem(self._key("alive"), self.runtime.incarnation)
        with contextlib.suppress(*self._failures):
            await self.client.aclose()

    def _key(self, name: str) -> str:
        return f"{self.runtime.settings.redis_prefix}/{name}"


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


async def _with_timeout(call: Awaitable[Any]) -> Any:
    """Wait for the store's answer. Errors: TimeoutError."""
    async with asyncio.timeout(CALL_TIMEOUT_S):
        return await call


def _decode_if_readable(payload: str) -> GroupMember | None:
    try:
        return decode_member(payload)
    except (OrtooError, ValueError, TypeError, KeyError) as error:
        _log.emit(log_events.MEMBERSHIP_RECORD_INVALID, reason=str(error))
        return None
