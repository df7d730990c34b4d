"""The page about capacity has the numbers that its own unit costs give, for a cluster that was never run."""

import re
from dataclasses import replace

import pytest

from bench.large_cluster import PAGE, UNITS, Cluster, limits, need, page

LARGE = Cluster()


def test_the_page_has_the_computed_numbers() -> None:
    """`python -m bench.large_cluster --page` makes the section."""
    assert page(PAGE.read_text()) == PAGE.read_text()


def test_the_prose_of_the_section_is_about_the_computed_cluster() -> None:
    """Sentences outside the tables name the same cluster."""
    section = PAGE.read_text().partition("## A large cluster")[2]
    prose = "\n".join(line for line in section.splitlines() if not line.startswith("|"))
    stated = {int(number.replace(",", "")) for number in re.findall(r"\b\d[\d,]*\b", prose)}
    assert stated >= {LARGE.enodes, LARGE.snodes, LARGE.topics, LARGE.groups, LARGE.clients}, stated


def test_the_arithmetic_by_hand() -> None:
    """20,000 clients a snode poll every 20 s, send heartbeats every 10 s and queries every 5 s."""
    it = need(LARGE)
    assert (it.polls_per_s, it.heartbeats_per_s, it.queries_per_s) == (1_000, 2_000, 4_000)
    assert it.client_cores == pytest.approx(1_000 * 0.0005 + 6_000 * 0.00005)
    assert it.enode_waits == 1_000_000 * 2 / 100
    assert it.enode_cores == pytest.approx(it.enode_waits / 60 * 0.0004)
    assert it.processes == 107
    assert {unit.unit for unit in UNITS.values()} == {"ms", "µs", "KiB", "bytes"}


@pytest.mark.parametrize("more", ["topics", "groups", "clients", "enodes_of_a_topic"])
def test_more_of_anything_uses_no_limit_less(more: str) -> None:
    """Each limit is used at least as much, and one of them more."""
    before = {one.what: one.used for one in limits(LARGE)}
    after = {one.what: one.used for one in limits(replace(LARGE, **{more: 2 * getattr(LARGE, more)}))}
    assert all(after[what] >= used for what, used in before.items())
    assert after != before


def test_more_processes_use_the_limits_of_processes_less() -> None:
    """Twice the snodes halve the work of each; only the name server has more watchers."""
    before = {one.what: one.used for one in limits(LARGE)}
    after = {one.what: one.used for one in limits(replace(LARGE, snodes=2 * LARGE.snodes))}
    assert after["half a core of each snode"] == pytest.approx(before["half a core of each snode"] / 2)
    assert after["watchers of a name server"] > before["watchers of a name server"]


def test_calls_cost_more_with_the_other_transport() -> None:
    """Heartbeats and queries cost more with `transport = "grpc"`; nothing else differs."""
    before, after = need(LARGE), need(replace(LARGE, is_grpc=True))
    assert after.client_cores == pytest.approx(1_000 * 0.0005 + 6_000 * 0.0002)
    assert replace(after, client_cores=before.client_cores, processes=before.processes) == before
