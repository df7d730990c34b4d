"""The work of the busiest machines of a large cluster, beside one of a quarter of its size."""

from collections import Counter

import pytest

from tests.simulation.growth.costs import LARGE_CLUSTER, findings
from tests.simulation.growth.large_cluster import Run, busiest, busiest_functions, is_traced, measure, report


@pytest.mark.deep
def test_costs_grow_as_the_table_allows() -> None:
    """With clusters of a size that takes half a minute; `make growth` has 50 and 200 enodes."""
    few, many = measure(6, 2), measure(24, 8)
    assert not [str(one) for one in findings(LARGE_CLUSTER, few.costs, many.costs)]


def test_the_busiest_machine_of_a_role_counts() -> None:
    """For each measure it may be another one."""
    machines = {
        "enode-0": Counter({"lines": 9, "messages": 1}),
        "enode-1": Counter({"lines": 3, "messages": 2}),
        "snode-0": Counter({"lines": 4}),
    }
    assert busiest(machines) == {"enode lines": 9, "enode messages": 2, "snode lines": 4}
    functions = {"enode-0": Counter(apply=5, read=1), "enode-1": Counter(read=5), "snode-0": Counter(send=1)}
    assert busiest_functions(functions) == {"enode": functions["enode-0"], "snode": functions["snode-0"]}


def test_the_same_part_of_each_role_is_traced_in_clusters_of_both_sizes() -> None:
    """All name servers, a tenth of the enodes and a fifth of the snodes."""
    for enodes, snodes in ((50, 5), (200, 20)):
        assert sum(is_traced(f"enode-{number}") for number in range(enodes)) == enodes // 10
        assert sum(is_traced(f"snode-{number}") for number in range(snodes)) == snodes // 5
    assert is_traced("namesrv-0")
    assert not is_traced("client-0")
    assert not is_traced("script")


def test_the_report_names_the_functions_of_a_cost_that_grows_too_fast() -> None:
    """With the number of lines that they execute more."""
    few, many = Run(50, 5), Run(200, 20)
    for run, lines in ((few, 100), (many, 9_000_000)):
        run.costs["idle"], run.took_s["idle"] = Counter({"snode lines": lines, "snode messages": 7}), 1.0
        run.functions["idle"] = {"snode": Counter({"search": lines - 10, "send": 10})}
    wrong = {(one.step, one.measure) for one in findings(LARGE_CLUSTER, few.costs, many.costs)}
    assert wrong == {("idle", "snode lines")}
    assert [" ".join(line.split()) for line in report(few, many, wrong)] == [
        "idle (1.0 and 1.0 s of processor time)",
        "snode lines 100 9,000,000 TOO FAST",
        "8,999,900 more in search",
        "snode messages 7 7",
    ]
