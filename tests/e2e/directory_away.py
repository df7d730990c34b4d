"""PostgreSQL is down, and is later restored from an old copy: the leader keeps working, nothing acknowledged is lost.

    python -m tests.e2e.directory_away --away 60 --age 600

One enode of three replicas under load, a name server over PostgreSQL. A copy of the database is taken, a topic is
created and a leader is killed, so that the copy is outdated. Then PostgreSQL is down for a minute: no send may be
refused, and the leader must not change. It is down once more, and the leader is killed meanwhile. Another replica has
to serve within three seconds after PostgreSQL accepts connections again. Finally the old copy is restored, the name
server starts on it, and leaders are killed, so that outdated epochs are proposed. The topic that the copy does not
contain is adopted from the enode. The history of all sends and reads must be that of a single log. The exit code is 1
when a guarantee was broken.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ortoo.client import Client, OrtooError
from ortoo.common.logs import logger as logs
from ortoo.verification.servers.postgres import Postgres, postgres
from tests.e2e.drill import run_drill, say
from tests.e2e.failovers import MOST_S, TakeOvers, under_load
from tests.e2e.history import Send
from tests.e2e.replica_cluster import leading, reign, replica_cluster, whole

LATER = "later"
LATER_MESSAGES = 100
SEND_MAX_S = 1.0
"""No send waits for the directory."""
LEADERLESS_S = 3.0
"""Seconds between the death of the leader and the return of PostgreSQL."""
KILLS = 2
"""Number of leaders killed on the old copy."""
ADOPTED_WITHIN_S = 30.0
LOOK_S = 0.1


@dataclass(slots=True)
class DirectoryAway:
    """One run and its results."""

    database: Postgres
    take_overs: TakeOvers
    say: Callable[[str], object]
    faults: list[str] = field(default_factory=list)

    async def run(self, *, away_s: float, age_s: float) -> None:
        """Run all phases."""
        clock = self.take_overs.load.clock
        await self.database.save()
        saved_s = clock.monotonic_s()
        await self._later_topic()
        await self._killed("after the copy was taken")
        await self._away(away_s)
        await self._killed_while_away()
        await clock.sleep(max(0.0, saved_s + age_s - clock.monotonic_s()))
        await self._restored(clock.monotonic_s() - saved_s)
        for _ in range(KILLS):
            await self._killed("on the old copy")
        await self._adopted()

    @property
    def _mq(self) -> Client:
        return self.take_overs.mq

    async def _killed(self, when: str) -> None:
        done = await self.take_overs.round("kill", await self.take_overs.ready())
        self.say(f"a leader killed {when}: {done.took_s:.2f} s, machine stood still for {done.stalled_s * 1000:.0f} ms")
        if done.took_s > MOST_S:
            self.faults.append(f"a take-over {when} took {done.took_s:.2f} s")

    async def _away(self, away_s: float) -> None:
        """The leader does not change, and no send is refused or slow."""
        clock, before = self.take_overs.load.clock, await reign(self._mq)
        await self.database.stop()
        begun_s = clock.monotonic_s()
        await clock.sleep(away_s)
        sends = self._sends_since(begun_s)
        await self.database.start()
        after, slowest_s = await reign(self._mq), max(one.ended_s - one.invoked_s for one in sends)
        refused = sum(one.offset < 0 for one in sends)
        self.say(
            f"PostgreSQL away for {away_s:.0f} s: {len(sends)} sent, {refused} refused, slowest {slowest_s:.3f} s, "
            f"leader (replica, epoch) {before} before, {after} after"
        )
        if refused or slowest_s > SEND_MAX_S or not sends:
            self.faults.append(
                f"without a directory {refused} of {len(sends)} sends refused, slowest {slowest_s:.2f} s"
            )
        if before != after:
            self.faults.append(f"{after} leads and {before} did, though no replica died")

    async def _killed_while_away(self) -> None:
        """No leader can be proposed without the database; a replica serves soon after its return."""
        clock, leader = self.take_overs.load.clock, await self.take_overs.ready()
        await self.database.stop()
        killed_s = clock.monotonic_s()
        await leader.kill()
        await clock.sleep(LEADERLESS_S)
        acknowledged = sum(one.offset >= 0 for one in self._sends_since(killed_s))
        await self.database.start()
        back_s = clock.monotonic_s()
        took_s = await self.take_overs.load.first_after(back_s) - back_s
        await leader.start()
        self.say(f"a leader killed meanwhile: another one acknowledged {took_s:.2f} s after PostgreSQL was back")
        if acknowledged:
            self.faults.append(f"{acknowledged} sends were acknowledged while no leader could be proposed")
        if took_s > MOST_S:
            self.faults.append(f"a take-over took {took_s:.2f} s after PostgreSQL was back")

    async def _restored(self, age_s: float) -> None:
        await whole(self._mq)
        namesrv, before = self.take_overs.cluster.namesrv, await reign(self._mq)
        await namesrv.kill()
        await self.database.restore()
        await namesrv.start()
        after = await reign(self._mq)
        self.say(f"PostgreSQL as it was {age_s:.0f} s before: leader (replica, epoch) {before} before, {after} after")
        if before != after:
            self.faults.append(f"{after} leads and {before} did, though no replica died")

    async def _later_topic(self) -> None:
        """Create a topic that the copy does not contain, and send messages to it."""
        await leading(self.take_overs.cluster, self._mq)
        await _until_done(self.take_overs, lambda: self._mq.admin.ensure_topic(LATER, queue_count=1))
        async with self._mq.producer(LATER) as producer:
            await (await producer.send_many([b"%d" % number for number in range(LATER_MESSAGES)]))

    async def _adopted(self) -> None:
        """The enode offers the topic, with every acknowledged message."""
        async with asyncio.timeout(ADOPTED_WITHIN_S):
            await _until_done(self.take_overs, lambda: self._mq.admin.adopt_topics(LATER))
            await _until_done(self.take_overs, lambda: self._mq.admin.describe_topic(LATER))
            found = [it.message.body async for it in self._mq.admin.tail(LATER, from_beginning=True, follow=False)]
        self.say(f"{len(found)} of {LATER_MESSAGES} messages of the topic that the copy did not know")
        if found != [b"%d" % number for number in range(LATER_MESSAGES)]:
            self.faults.append(f"the adopted topic has {len(found)} messages")

    def _sends_since(self, at_s: float) -> list[Send]:
        return [one for one in self.take_overs.load.history.sends if one.invoked_s >= at_s]


async def _until_done(take_overs: TakeOvers, ask: Callable[[], object]) -> None:
    """Repeat a request until it succeeds: a name server that has just started does not know its enodes."""
    while True:
        with contextlib.suppress(OrtooError):
            await ask()  # type: ignore[misc]
            return
        await take_overs.load.clock.sleep(LOOK_S)


async def directory_away(
    folder: Path, *, away_s: float, age_s: float, rate: int, say: Callable[[str], object]
) -> list[str]:
    """Run it in `folder` and return the broken guarantees."""
    async with (
        postgres() as database,
        replica_cluster(folder, database_url=database.url) as cluster,
        under_load(cluster, rate=rate, say=say) as take_overs,
    ):
        run = DirectoryAway(database, take_overs, say)
        await run.run(away_s=away_s, age_s=age_s)
    history = take_overs.load.history
    acknowledged = sum(one.offset >= 0 for one in history.sends)
    say(f"{len(history.sends)} sent, {acknowledged} acknowledged, {len(history.reads)} reads")
    return [*run.faults, *history.problems()]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--away", type=float, default=60.0, help="seconds")
    parser.add_argument("--age", type=float, default=600.0, help="minimum age of the copy in seconds")
    parser.add_argument("--rate", type=int, default=50, help="messages a second")
    given = parser.parse_args()
    logs.configure(level="error")

    with tempfile.TemporaryDirectory(prefix="ortoo-directory-") as folder:
        found = run_drill(directory_away(Path(folder), away_s=given.away, age_s=given.age, rate=given.rate, say=say))
    for fault in found:
        say(f"broken: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
