"""The page of figures shows what was measured, and nothing else."""

import html

import pytest

from bench import spark_kafka_table
from bench.peers import table as peers
from bench.suite import BENCHES
from bench.table import FIGURES, PEERS, TABLE, load, page_with, peers_content, rows, table


def test_the_readme_shows_the_committed_results() -> None:
    """The table in docs/figures.md and bench/results/table.md are made from bench/results: `python -m bench.table`."""
    content = table(load())
    assert TABLE.read_text() == content
    assert page_with(FIGURES.read_text(), content) == FIGURES.read_text()


def test_the_readme_shows_the_comparison_with_other_brokers() -> None:
    """Its table comes from the committed figures, and its picture exists: `python -m bench.peers`."""
    assert peers.TABLE == PEERS
    assert page_with(FIGURES.read_text(), peers_content(), "bench-peers") == FIGURES.read_text()
    if not PEERS.exists():
        pytest.skip("NO comparison with other brokers was committed; run `make bench-peers` on a machine at rest")
    assert PEERS.read_text() == peers.table(peers.load())
    picture = html.unescape(peers.PICTURE.read_text())
    assert [one.what for one in peers.compared(peers.load()) if one.what.replace("`", "") not in picture] == []


def test_the_page_of_kafkas_connector_shows_the_committed_result() -> None:
    """The table in docs/spark/kafka.md comes from bench/results/spark: `python -m bench.suite spark_kafka`."""
    assert spark_kafka_table.page() == spark_kafka_table.PAGE.read_text()


def test_every_benchmark_has_a_result_and_a_row() -> None:
    """Every benchmark of `make bench` has a result and a row."""
    results = load()
    assert set(BENCHES) == set(results)
    for name, result in results.items():
        assert rows({name: result}), name
        assert result["bench"] == name
        assert {"setting", "method", "baselines", "ratios"} <= result.keys()


def test_the_table_goes_between_the_marks() -> None:
    """The text around the marks stays; a text without marks is refused."""
    text = "before\n<!-- bench: begin -->\nold\n<!-- bench: end -->\nafter\n"
    assert page_with(text, "new\n") == text.replace("old", "new")
    with pytest.raises(ValueError, match="bench: begin"):
        page_with("no marks", "new\n")
