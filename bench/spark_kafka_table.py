"""The table of docs/spark/kafka.md from the committed result of `bench.spark_kafka`."""

import json

from bench.report import Figures
from bench.table import RESULTS, ROOT, page_with

PAGE = ROOT / "docs/spark/kafka.md"
NOT_YET = "It was not run on a machine at rest yet.\n"
RESULT = RESULTS / "spark" / "spark_kafka.json"
PARTS = "jvm_s", "python_s", "servers_s"
HEAD = (
    "path",
    "clock: Kafka to Ortoo",
    "processor: Kafka to Ortoo",
    "Ortoo: JVM + Python and commands + servers",
    "Kafka: JVM + commands + broker",
)
OTHERS_SHARE_MAX = 0.1
"""The largest share of other programs at which clock times are worth reading."""
LEAST_HEAD = "small stream over", "clock", "JVM", "Python and commands", "servers"


def page() -> str:
    """The page with the table of the committed result."""
    content = table(json.loads(RESULT.read_text())) if RESULT.exists() else NOT_YET
    return page_with(PAGE.read_text(), content, "spark-kafka")


def table(result: Figures) -> str:
    """The setting of the measurement, and one line for each path, what is dearer with Ortoo first."""
    setting, loads = result["setting"], result["load_averages"]
    by_cost = sorted(result["paths"].items(), key=lambda item: item[1]["ratios"]["processor_s"])
    lines = [
        f"Measured on {setting['cores']} cores and {setting['memory_gib']} GiB with Spark {result['spark']} and Kafka "
        f"{result['kafka']}: {result['rows']:,} rows with bodies of {result['body_bytes']} bytes, {result['rounds']} "
        f"rounds. The load average was {min(loads)} to {max(loads)} at their starts. {_others(result['others_share'])}",
        "",
        _line(HEAD),
        _line(("---",) * len(HEAD)),
        *(_line((name, *_ratios(path), *_seconds(path))) for name, path in by_cost),
    ]
    if "jvm_source" in result:
        lines += ["", _line(LEAST_HEAD), _line(("---",) * len(LEAST_HEAD)), *_least(result)]
    return "\n".join(lines) + "\n"


def _others(share: float) -> str:
    told = f"Other programs used {share * 100:.0f} % of the machine"
    return f"{told}, so that ratios of clock times tell little." if share > OTHERS_SHARE_MAX else f"{told}."


def _least(result: Figures) -> list[str]:
    """The cost of a small stream over each source, next to the least that Spark allows."""
    small = result["paths"]["small stream"]["medians"]
    found = {
        "a topic of Ortoo": small["ortoo"],
        "a topic of Kafka": small["kafka"],
        "a Python source that does no work": result["plain_source"],
        "rows that the JVM makes": result["jvm_source"],
    }
    return [_line((name, *(f"{cost[part]:.2f} s" for part in ("clock_s", *PARTS)))) for name, cost in found.items()]


def _ratios(path: Figures) -> list[str]:
    return [
        f"{path['ratios'][what]:.2f} ({path['ranges'][what][0]:.2f} to {path['ranges'][what][1]:.2f})"
        for what in ("clock_s", "processor_s")
    ]


def _seconds(path: Figures) -> list[str]:
    return [
        f"{path['medians'][system]['processor_s']:.2f} s: "
        + " + ".join(f"{path['medians'][system][part]:.2f}" for part in PARTS)
        for system in ("ortoo", "kafka")
    ]


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
