"""The record of evicted push sessions: counted for ten minutes, bounded, the last one first."""

from ortoo.snode.push import evictions as module
from ortoo.snode.push.evictions import SHOWN_S, SlowEvictions
from ortoo.verification.time.virtual_clock import VirtualClock


def test_evictions_are_counted_and_forgotten_after_ten_minutes() -> None:
    """Each client of each group has one row with the last reason."""
    clock = VirtualClock()
    evictions = SlowEvictions(clock)

    async def scenario() -> None:
        evictions.record("g", "a", "first")
        evictions.record("g", "b", "only")
        evictions.record("h", "a", "another")
        evictions.record("g", "a", "second")
        assert [(one.client_id, one.count, one.reason) for one in evictions.of_group("g")] == [
            ("a", 2, "second"),
            ("b", 1, "only"),
        ]
        assert [one.name for one in evictions.findings()] == ["slow consumer"] * 3
        assert "ended 2 times: second" in next(evictions.findings()).observed
        await clock.sleep(SHOWN_S + 1)
        assert (list(evictions.findings()), evictions.of_group("g")) == ([], [])
        evictions.record("g", "a", "third")
        assert [one.count for one in evictions.of_group("g")] == [1]

    clock.run(scenario)


def test_the_record_is_bounded() -> None:
    """The client that was evicted longest ago is forgotten first."""
    evictions = SlowEvictions(VirtualClock())
    for number in range(module.REMEMBERED_MAX + 5):
        evictions.record("g", f"c{number}", "slow")
    rows = evictions.of_group("g")
    assert len(rows) == module.REMEMBERED_MAX
    assert (rows[0].client_id, rows[-1].client_id) == (f"c{module.REMEMBERED_MAX + 4}", "c5")
