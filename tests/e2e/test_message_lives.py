"""Message groups, and a killed replay of dead letters, with real processes."""

from pathlib import Path

from ortoo.verification.runs.fifo_run import FifoRun
from ortoo.verification.runs.replay_run import ReplayRun, faults


async def test_message_groups_keep_their_order_while_consumers_come_and_go_and_one_group_is_poisoned(
    tmp_path: Path,
) -> None:
    """No message is delivered before its predecessor is acknowledged; other groups ignore the poisoned one (G5)."""
    seen = await FifoRun(tmp_path, keys=200, per_key=4, consumers=12, rounds=1, pop_messages=4).run()
    assert seen["inversions"] == 0
    assert seen["poison_deliveries"] > 1
    assert seen["consumers_joined"] > 24


async def test_a_replay_that_is_killed_goes_on_and_sends_each_dead_letter_once(tmp_path: Path) -> None:
    """The command is killed, then the enode; a dry run before changes no byte of the store (E-173)."""
    seen = await ReplayRun(tmp_path, letters=2_000).run()
    assert faults(seen) == {}
    for case in ("command killed", "enode killed"):
        assert seen[case]["dry_run_finds"] == 2_000
        assert 1_000 <= seen[case]["found_sent_already"] < 2_000
        assert seen[case]["found_sent_already"] + seen[case]["sent_afterwards"] == 2_000
