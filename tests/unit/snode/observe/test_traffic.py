"""Totals of the traffic through a snode."""

from ortoo.common.telemetry.metrics import Metrics
from ortoo.common.telemetry.text import chunks
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.observe.traffic import Traffic


def test_totals_of_what_does_not_exist_any_more_are_dropped() -> None:
    """Topics come and go; otherwise each kind of total would keep a series for every former topic."""
    traffic, metrics = Traffic(), Metrics()
    traffic.register(metrics, DirectoryCache())
    traffic.count_delivered("gone", "g", "push", 3, 100)
    traffic.count_lost("gone", "g", 2)
    traffic.count_expired("gone", "g", 1)
    assert "gone" not in "".join(chunks(metrics))
    assert (traffic.delivered_totals, traffic.lost_totals, traffic.expired_totals) == ({}, {}, {})
