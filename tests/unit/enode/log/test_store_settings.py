"""The settings of a store, made to fit a machine."""

from ortoo.enode.log.settings import StoreSettings


def test_caches_keep_to_their_share_of_the_memory() -> None:
    """Both shrink in proportion where they are too large together, and neither where they fit."""
    wanted = StoreSettings(recent_bytes=600, index_bytes=300)
    small, large = wanted.with_memory_limits(50, 600), wanted.with_memory_limits(50, 1_800)
    assert (small.recent_bytes, small.index_bytes) == (200, 100)
    assert (large.recent_bytes, large.index_bytes) == (600, 300)
    nothing = StoreSettings(recent_bytes=0, index_bytes=0).with_memory_limits(50, 600)
    assert (nothing.recent_bytes, nothing.index_bytes) == (0, 0)


def test_the_bound_of_the_index_is_a_quarter_of_the_memory_unless_it_was_chosen() -> None:
    """A configured value stays, even if it is large."""
    assert StoreSettings().with_memory_limits(50, 1_000).index_bytes_max == 250
    assert StoreSettings(index_bytes_max=7_000).with_memory_limits(50, 1_000).index_bytes_max == 7_000
