"""The results as a table: bench/results/table.md, and the same between two marks in docs/figures.md.

`python -m bench.table` writes both from the committed results.
"""

import json
from pathlib import Path

from bench.report import Figures

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
TABLE = RESULTS / "table.md"
FIGURES = ROOT / "docs" / "figures.md"
PEERS = RESULTS / "peers" / "table.md"
TELLS_LITTLE = ", so that ratios tell little"
"""The remark in the table when other programs used much of the machine."""
PEERS_NOT_YET = (
    "The tables of `make bench-peers` follow here after a run on a machine at rest. The command warms all systems up, "
    "and then measures each of them while the others are stopped.\n"
)
PEERS_PICTURE = "![Ortoo beside RocketMQ and Kafka, ratio by ratio](../bench/results/peers/peers.svg)\n"
HEAD = ("case", "figure", "compared with, in the same run", "ratio")
Row = tuple[str, str, str, str]


def load(folder: Path = RESULTS) -> dict[str, Figures]:
    """The results of a folder, by benchmark."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def rows(results: dict[str, Figures]) -> list[Row]:
    """The rows of the table; a benchmark without results has no rows."""
    makers = (
        ("produce", _produce), ("end_to_end", _end_to_end), ("latency", _latency), ("unary", _unary),
        ("catch_up", _catch_up), ("scale_queues", _scale_queues), ("scale_log", _scale_log),
        ("cold_start", _cold_start), ("memory", _memory), ("filters", _filters),
    )  # fmt: skip
    return [row for name, make in makers if name in results for row in make(results[name])]


def table(results: dict[str, Figures]) -> str:
    """The whole text: the setting, then the table."""
    lines = [setting(results), "", _line(HEAD), _line(("---",) * len(HEAD))]
    return "\n".join([*lines, *map(_line, rows(results))]) + "\n"


def setting(results: dict[str, Figures]) -> str:
    """The setting of the measurement."""
    settings = [result["setting"] for result in results.values()]
    if not settings:
        return "Nothing was measured yet; `make bench` does."
    one = settings[0]
    loads = [each["load_average_before"] for each in settings]
    # The oldest results have neither field, and were measured when all servers used this transport.
    transport = one.get("transport", "" if "python_build" in one else "grpc")
    default = f"transport `{transport}`, all other settings by default" if transport else "default settings"
    return (
        f"Measured by `make bench` on {one['cores']} cores and {one['memory_gib']} GiB, every process on it. Linux "
        f"{one['kernel'].split('-')[0]}, Python {one['python']}, grpcio {one['grpcio']}, {default}. "
        "Every acknowledged message has been through `fdatasync`; bodies of 256 bytes. Load average before each "
        f"benchmark: {min(loads)} to {max(loads)}. Times differ from run to run, ratios less."
    )


def page_with(text: str, content: str, name: str = "bench") -> str:
    """`text` with `content` between the marks of a name. Errors: ValueError when they are not there."""
    opening, closing = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, begin, rest = text.partition(opening)
    _, end, after = rest.partition(closing)
    if not (begin and end):
        raise ValueError(f"no {opening} ... {closing}")
    return f"{before}{opening}\n{content}{closing}{after}"


def peers_content() -> str:
    """The comparison with other brokers for docs/figures.md: its picture and table, if the machine was idle."""
    content = PEERS.read_text() if PEERS.exists() else TELLS_LITTLE
    return PEERS_NOT_YET if TELLS_LITTLE in content else f"{PEERS_PICTURE}\n{content}"


def write_documents() -> None:
    """Write the table, and put it and the comparison with other brokers into docs/figures.md."""
    content = table(load())
    TABLE.write_text(content)
    FIGURES.write_text(page_with(page_with(FIGURES.read_text(), content), peers_content(), "bench-peers"))


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _rate(figures: Figures) -> str:
    return f"{figures['messages_per_s']:,.0f} messages/s"


def _sizes(by_process: dict[str, float]) -> str:
    return ", ".join(f"{'producer' if name == 'client' else name} {mib:.0f} MiB" for name, mib in by_process.items())


def _times(figures: Figures) -> str:
    return f"p50 {figures['p50_ms']:.1f} ms, p99 {figures['p99_ms']:.1f} ms"


def _ratio(result: Figures, name: str, *, as_times: bool = False) -> str:
    value = result["ratios"][name]
    return f"{value:.1f}×" if as_times else f"{value * 100:.0f} %"


def _produce(result: Figures) -> list[Row]:
    baselines, case = result["baselines"], "produce, one Python producer"
    grpc, valkey, nats, unsynced = baselines.values()
    bare = "bare grpc.aio streaming over the same two hops"
    large = result["large_bodies"]
    return [
        (case, _rate(result), f"Valkey `XADD`, pipelined, `appendfsync always`: {_rate(valkey)}",
         _ratio(result, "messages_per_s to Valkey", as_times=True)),
        (case, _rate(result), f"NATS JetStream, `sync_interval: always`: {_rate(nats)}",
         _ratio(result, "messages_per_s to NATS synced", as_times=True)),
        (case, _rate(result), f"NATS JetStream, default, not synced: {_rate(unsynced)}",
         _ratio(result, "messages_per_s to NATS default", as_times=True)),
        (case, f"{result['mb_per_s']:.0f} MB/s", f"{bare}: {grpc['mb_per_s']:.0f} MB/s",
         _ratio(result, "mb_per_s to raw grpc.aio")),
        (f"{case}, bodies of {large['body_bytes'] // 1024} KiB", f"{large['mb_per_s']:.0f} MB/s", bare,
         _ratio(result, "mb_per_s of large bodies to raw grpc.aio")),
    ]  # fmt: skip


def _end_to_end(result: Figures) -> list[Row]:
    (grpc,) = result["baselines"].values()
    return [
        ("produce and push-consume at once, every message verified", f"{_rate(result)}, {result['mb_per_s']:.0f} MB/s",
         f"bare grpc.aio streaming over two hops, one way: {grpc['mb_per_s']:.0f} MB/s",
         _ratio(result, "mb_per_s to raw grpc.aio one way")),
    ]  # fmt: skip


def _latency(result: Figures) -> list[Row]:
    (proxy,) = result["baselines"].values()
    return [
        (f"send to push at {result['messages_per_s']:,.0f} messages/s", _times(result["push"]),
         f"empty two-hop grpc.aio proxy, call to answer: {_times(proxy)}",
         _ratio(result, "p50 of the empty proxy's answer to p50 of push")),
        (f"send to acknowledgement at {result['messages_per_s']:,.0f} messages/s", _times(result["ack"]),
         f"empty two-hop grpc.aio proxy, call to answer: {_times(proxy)}",
         _ratio(result, "p50 of the empty proxy's answer to p50 of ack")),
    ]  # fmt: skip


def _unary(result: Figures) -> list[Row]:
    (proxy,) = result["baselines"].values()
    return [
        (f"single sends, {result['in_flight']} in flight", f"{_rate(result)}, p50 {result['p50_ms']:.1f} ms",
         f"empty two-hop grpc.aio proxy, not durable: {_rate(proxy)}",
         _ratio(result, "messages_per_s to the empty proxy")),
    ]  # fmt: skip


def _catch_up(result: Figures) -> list[Row]:
    (alone,) = result["baselines"].values()
    return [
        (f"produce while a reader drains {result['backlog_mb'] / 1000:.0f} GB",
         f"{_rate(result)}, drained at {result['drain_messages_per_s']:,}/s", f"producing alone: {_rate(alone)}",
         _ratio(result, "produce rate beside the reader to alone")),
    ]  # fmt: skip


def _scale_queues(result: Figures) -> list[Row]:
    (few,) = result["baselines"].values()
    return [(f"produce, unkeyed, {result['queues']:,.0f} queues", _rate(result), f"8 queues: {_rate(few)}",
             _ratio(result, "messages_per_s to 8 queues"))]  # fmt: skip


def _scale_log(result: Figures) -> list[Row]:
    (short,) = result["baselines"].values()
    return [(f"produce, {result['stored_messages'] / 1e6:.0f} million stored", _rate(result),
             f"10,000 stored: {_rate(short)}", _ratio(result, "messages_per_s to a short log"))]  # fmt: skip


def _cold_start(result: Figures) -> list[Row]:
    (empty,) = result["baselines"].values()
    return [
        ("`ortoo dev` in an empty folder to its first acknowledged send",
         f"{result['first_send_s']:.2f} s, idle {result['idle_memory_mib']:.0f} MiB",
         f"empty grpc.aio server to its first answer: {empty['first_answer_s']:.2f} s",
         _ratio(result, "the empty server's time to ours")),
    ]  # fmt: skip


def _memory(result: Figures) -> list[Row]:
    peak, idle = result["peak_mib"]["after the consumers"], result["baselines"]["idle"]
    return [
        (f"largest memory: {result['backlog_mb'] / 1000:.0f} GB backlog, {result['consumers']:.0f} consumers",
         _sizes(peak), f"idle: {_sizes(idle)}", ""),
    ]  # fmt: skip


def _filters(result: Figures) -> list[Row]:
    plain = result["baselines"]["plain pull"]
    rates, ratios = result["messages_per_s"], result["ratios"]
    return [
        (f"read through the filter `{name}`", f"{rates[name]:,.0f} messages/s inspected",
         f"reading all: {_rate(plain)}", f"{ratios[f'{name} to plain pull'] * 100:.0f} %")
        for name in rates
    ]  # fmt: skip


if __name__ == "__main__":
    write_documents()
