"""The page about capacity says what the committed results say, and more of a load never needs less."""

from dataclasses import replace

import pytest

from bench.capacity import PAGE, Load, capacity, committed, page
from bench.table import RESULTS, load

RESULTS_NOW, START = committed(), load(RESULTS / "store")["store_start"]
SOME = Load(20_000, 1_000, groups=2, days=3, replicas=3, single=0.1)


def test_the_page_says_what_the_results_say() -> None:
    """`python -m bench.capacity --page` makes the table from `bench/results`."""
    assert page(PAGE.read_text()) == PAGE.read_text()


@pytest.mark.parametrize(
    "more",
    [{"rate": 40_000.0}, {"body": 4_000}, {"groups": 5}, {"days": 30.0}, {"single": 1.0}, {"queues": 100_000}],
)
def test_more_of_a_load_never_needs_less(more: dict[str, float]) -> None:
    """Of nothing is less needed, and of something more."""
    before = capacity(SOME, RESULTS_NOW, START)
    after = capacity(replace(SOME, **more), RESULTS_NOW, START)  # type: ignore[arg-type]
    assert after != before
    assert after.snode_cores >= before.snode_cores
    assert after.enode_cores >= before.enode_cores
    assert after.disk_gb * after.enodes >= before.disk_gb * before.enodes
    assert after.network_mb_per_s >= before.network_mb_per_s


def test_what_was_measured_is_what_its_own_load_needs() -> None:
    """The load of the benchmark needs the processor time that it took; disks hold what is kept, with room."""
    sent = RESULTS_NOW["produce"]
    needed = capacity(Load(sent["messages_per_s"], sent["body_bytes"], groups=0), RESULTS_NOW, START)
    took = sent["cpu_us_per_message"]["enode"] * sent["messages_per_s"] / 1e6
    assert needed.enode_cores == pytest.approx(took)
    kept_gb = SOME.rate * 86_400 * SOME.days * SOME.body / 1e9
    some = capacity(SOME, RESULTS_NOW, START)
    assert some.disk_gb * some.enodes > kept_gb * 1.2
    assert some.disk_gb <= SOME.disk_gb_max
