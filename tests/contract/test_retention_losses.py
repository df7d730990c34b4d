"""Messages that retention deleted before a group finished them: counted for the group, and told in the log."""

from structlog.testing import capture_logs

from ortoo.enode import log_events
from ortoo.enode.observe.retention_losses import RetentionLosses
from tests.contract.one_store import TOPIC
from tests.contract.pop_store import PopStore, play

BODY = b"x" * 200


def test_each_loss_is_a_line_of_the_log() -> None:
    """One line for each deletion, with the group, the topic and the number; a group that has read loses nothing."""

    async def scenario(it: PopStore) -> None:
        one = it.one
        losses = RetentionLosses(it.store, one.clock)
        for _ in range(60):
            await one.append(BODY, count=2)
        await it.store.offsets.commit(TOPIC, "slow", {0: 1})
        await it.store.offsets.commit(TOPIC, "fast", {0: 120})
        held = it.store.queue_range(TOPIC, 0)
        assert (held.begin_offset, held.end_offset) == (0, 120)
        topic = it.store.topic(TOPIC)
        assert topic is not None

        expected, first = [], 1
        with capture_logs() as lines:
            for _ in range(2):
                await it.store.engine.housekeeping.delete_below(it.store.engine.catalog.segments[1].base)
                begin = it.store.queue_range(TOPIC, 0).begin_offset
                assert begin > first
                expected.append(("slow", topic.name, begin - first))
                first = begin
        told = [one for one in lines if one["event"] == log_events.RETENTION_DELETED_UNREAD.name]
        assert [(one["group"], one["topic"], one["messages"]) for one in told] == expected
        assert losses.totals[TOPIC, "slow"].messages == sum(count for *_, count in expected)
        assert (TOPIC, "fast") not in losses.totals

    play(scenario)
