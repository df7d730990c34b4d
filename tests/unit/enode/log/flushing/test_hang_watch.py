"""Whether the disk hangs: looks at a write, and stalls of the machine."""

from dataclasses import dataclass, field

from ortoo.enode.log.flushing.hang_watch import HangWatch

INTERVAL_S = 0.5


@dataclass
class Write:
    """A write that began at 10 s and does not end."""

    watch: HangWatch = field(default_factory=HangWatch)

    def hangs_after(self, *durations_s: float) -> list[bool]:
        """Whether the disk counts as hanging at looks after these durations."""
        return [bool(self.watch.look(10.0, duration_s)) for duration_s in durations_s]


def test_a_disk_hangs_when_a_write_lasts_longer_than_a_second() -> None:
    """With a look every half second the third look notices it, and so does each further look."""
    assert Write().hangs_after(*(INTERVAL_S * n + 0.2 for n in range(5))) == [False, False, True, True, True]


def test_a_stall_of_the_machine_is_no_hanging_disk() -> None:
    """After a stall the end of a write may be noticed a moment later than the time."""
    assert Write().hangs_after(5.0, 5.001) == [False, False]
    assert Write().hangs_after(0.1, 7.0, 7.001) == [False, False, False]


def test_a_disk_that_hangs_during_a_stall_is_noticed_afterwards() -> None:
    """Two further looks are enough."""
    assert Write().hangs_after(5.0, 5.5, 6.0) == [False, True, True]


def test_each_write_is_looked_at_on_its_own() -> None:
    """A write that has ended counts for no other write."""
    one = Write()
    assert one.hangs_after(0.5, 1.0) == [False, False]
    assert not one.watch.look(10.0, 0.0)
    assert not one.watch.look(11.0, 0.4)
    assert one.hangs_after(0.5) == [False]
