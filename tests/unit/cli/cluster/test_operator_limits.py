"""Commands and calls that meet a limit or miss an argument say what to do."""

from datetime import timedelta

import pytest

from ortoo.cli.cluster import users
from ortoo.client import Conflict, Invalid, connect
from ortoo.client.admin.enodes import draining
from ortoo.enode.schedules import runner
from ortoo.testing.pytest_broker import Broker

pytestmark = pytest.mark.ortoo(topics=["one", "two"])
HOUR = timedelta(hours=1)


async def test_a_new_user_without_a_secret_is_refused_by_the_name_of_the_option(broker: Broker) -> None:
    """The text says that the user is new, and which option is missing."""
    async with connect() as mq:
        with pytest.raises(Invalid, match=r"user ann does not exist.* set an environment variable") as refused:
            await users.put(mq, "ann")
    assert refused.value.field == "--secret-env"


async def test_a_schedule_beyond_the_limit_is_refused_at_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client does not retry, and its error names the limit."""
    monkeypatch.setattr(runner, "TOPIC_MAX", 1)
    async with connect() as mq:
        await mq.admin.schedules.create("one", "a", b"x", every=HOUR)
        before_ms = broker.clock.now_ms()
        with pytest.raises(Conflict, match="an enode keeps 1; delete schedules"):
            await mq.admin.schedules.create("one", "b", b"x", every=HOUR)
        assert broker.clock.now_ms() - before_ms < 1_000


async def test_a_drain_counts_schedules_beyond_the_limit_of_a_list(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of all topics is full, so each topic is listed."""
    monkeypatch.setattr(draining, "LISTED_MAX", 2)
    async with connect() as mq:
        for topic in ("one", "two"):
            for name in ("a", "b"):
                await mq.admin.schedules.create(topic, name, b"x", every=HOUR)
        topics = await mq.admin.list_topics()
        assert await draining.count_schedules(mq.admin, "enode-0", topics) == 4
        assert await draining.count_schedules(mq.admin, "enode-1", topics) == 0
