"""The table of the comparison with Kafka's connector on Spark."""

import pytest

from bench.report import Figures
from bench.spark_kafka_table import table

COST = {"clock_s": 0.7, "processor_s": 0.6, "jvm_s": 0.2, "python_s": 0.35, "servers_s": 0.05}


def result(**more: object) -> Figures:
    """A result with one path."""
    ratios = {"clock_s": 1.5, "processor_s": 0.9}
    path = {
        "rows": 1_000,
        "medians": {"ortoo": COST, "kafka": COST | {"python_s": 0.16}},
        "ratios": ratios,
        "ranges": {name: [ratio, ratio] for name, ratio in ratios.items()},
    }
    return {
        "setting": {"cores": 2, "memory_gib": 8}, "load_averages": [0.5], "others_share": 0.02, "spark": "4.2.0",
        "kafka": "4.3.1", "rows": 1_000, "body_bytes": 200, "rounds": 3, "paths": {"small stream": path},
    } | more  # fmt: skip


def test_a_small_stream_is_shown_next_to_the_least_that_spark_allows() -> None:
    """The cost of a source without work, and of one without Python, tells what a connector can change."""
    found = table(result(plain_source=COST | {"python_s": 0.3}, jvm_source=COST | {"python_s": 0.15}))
    assert "| a topic of Ortoo | 0.70 s | 0.20 s | 0.35 s | 0.05 s |" in found
    assert "| a topic of Kafka | 0.70 s | 0.20 s | 0.16 s | 0.05 s |" in found
    assert "| a Python source that does no work | 0.70 s | 0.20 s | 0.30 s | 0.05 s |" in found
    assert "| rows that the JVM makes | 0.70 s | 0.20 s | 0.15 s | 0.05 s |" in found


@pytest.mark.parametrize(("share", "is_doubted"), [(0.02, False), (0.5, True)])
def test_clock_times_are_doubted_only_on_a_busy_machine(share: float, is_doubted: bool) -> None:
    """Other programs change clock times more than processor times."""
    found = table(result(others_share=share))
    assert f"Other programs used {share * 100:.0f} % of the machine" in found
    assert ("tell little" in found) == is_doubted
