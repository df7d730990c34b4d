"""Reads members from the shared store, in parts of limited size."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ortoo.common.errors import OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock
from ortoo.snode import log_events
from ortoo.snode.membership.group_members import GroupMember, decode_member
from ortoo.snode.membership.redis_url import CALL_TIMEOUT_S
from ortoo.snode.membership.shared_membership import SharedMembership, StoredMember

GROUPS_AT_ONCE = 50
"""Number of groups of which one request reads the first records."""
FIRST_RECORDS = 20
"""Number of records of each group in such a request."""
RECORDS_AT_ONCE = 250
"""Number of records of one group in each further request."""
VERSIONS_AT_ONCE = 500
_log = get_logger("membership")


@dataclass(frozen=True, slots=True)
class StoredMembers:
    """The content of the store. Its calls raise the failures of redis-py, OSError and TimeoutError."""

    client: Any
    """The result of `redis_client`."""
    key_of: Callable[[str], str]
    """Adds the prefix of the store's keys."""
    clock: Clock

    async def read_groups(self, membership: SharedMembership) -> None:
        """Read some of the unread groups, and apply their members part by part."""
        groups = [group for group in list(membership.unread)[:GROUPS_AT_ONCE] if membership.begin_reading(group)]
        if not groups:
            return
        async with self.client.pipeline() as pipeline:  # a transaction: the versions are those before the records
            pipeline.get(self.key_of("number"))
            pipeline.hmget(self.key_of("versions"), groups)
            for group in groups:
                pipeline.hscan(self.key_of(f"members/{group}"), 0, count=FIRST_RECORDS)
            number, versions, *scans = await with_timeout(pipeline.execute())
        for group, version in zip(groups, versions, strict=True):
            membership.set_version(group, int(version or 0), int(number or 0))
        for group, (cursor, records) in zip(groups, scans, strict=True):
            async for part in self._rest(group, cursor, records):
                membership.apply_reading(group, part)
                await self.clock.sleep(0)  # calls go first
            membership.finish_reading(group)

    async def compare_versions(self, membership: SharedMembership) -> None:
        """Ask for another reading of the groups of which changes did not arrive."""
        groups = membership.followed_groups()
        for first in range(0, len(groups), VERSIONS_AT_ONCE):
            part = groups[first : first + VERSIONS_AT_ONCE]
            versions = await with_timeout(self.client.hmget(self.key_of("versions"), part))
            for group, version in zip(part, versions, strict=True):
                if membership.differs(group, int(version or 0)):
                    membership.request_reading(group)

    async def read_all(
        self, pause_s: float = 0.0, skipped: Collection[str] = ()
    ) -> AsyncIterator[list[tuple[str, GroupMember]]]:
        """The members of all groups in the store, each with its group, with a pause after each request.

        Members of snodes whose incarnations are in `skipped` are left out, and not decoded.
        """
        cursor = 0
        while True:
            found = self.client.sscan(self.key_of("groups"), cursor, count=GROUPS_AT_ONCE)
            cursor, groups = await with_timeout(found)
            async with self.client.pipeline(transaction=False) as pipeline:
                for group in groups:
                    pipeline.hscan(self.key_of(f"members/{group}"), 0, count=FIRST_RECORDS)
                scans = await with_timeout(pipeline.execute()) if groups else []
            for group, (records_cursor, records) in zip(groups, scans, strict=True):
                async for part in self._rest(group, records_cursor, records, pause_s, skipped):
                    yield [(group, one.member) for one in part.values()]
            await self.clock.sleep(pause_s)
            if not int(cursor):
                return

    async def _rest(
        self,
        group: str,
        cursor: int,
        records: Mapping[str, str],
        pause_s: float = 0.0,
        skipped: Collection[str] = (),
    ) -> AsyncIterator[dict[str, StoredMember]]:
        """The members in the first `records` of a group and in those behind the cursor, in parts."""
        while True:
            yield _decode(records, skipped)
            if not int(cursor):
                return
            await self.clock.sleep(pause_s)
            following = self.client.hscan(self.key_of(f"members/{group}"), cursor, count=RECORDS_AT_ONCE)
            cursor, records = await with_timeout(following)


def _decode(records: Mapping[str, str], skipped: Collection[str]) -> dict[str, StoredMember]:
    found = {}
    for client_id, text in records.items():
        if skipped and _incarnation_in(text) in skipped:
            continue
        number, _, payload = text.partition(" ")
        if (member := decode_if_readable(payload)) is not None:
            found[client_id] = StoredMember(int(number), member)
    return found


def _incarnation_in(text: str) -> str:
    """The incarnation in the text of a record, without decoding the text; empty if the form is another."""
    _, _, rest = text.partition('"incarnation":"')
    return rest.partition('"')[0]


def decode_if_readable(payload: str) -> GroupMember | None:
    """A member from its text; None, with a log line, if this snode cannot decode it."""
    try:
        return decode_member(payload)
    except (OrtooError, ValueError, TypeError, KeyError) as error:
        _log.emit(log_events.MEMBERSHIP_RECORD_INVALID, reason=str(error))
        return None


async def with_timeout(call: Awaitable[Any]) -> Any:
    """Wait for the store's answer. Errors: TimeoutError."""
    async with asyncio.timeout(CALL_TIMEOUT_S):
        return await call
