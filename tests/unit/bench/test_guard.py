"""The guard of the benchmarks: ratios, not times."""

from pathlib import Path

import pytest

from bench import guard
from bench.guard import Regression, regressions
from bench.report import Figures


def results(**ratios: float) -> dict[str, Figures]:
    """The results of one benchmark with these ratios."""
    return {"produce": {"ratios": ratios, "messages_per_s": 1.0}}


@pytest.mark.parametrize(("now", "falls"), [(1.0, False), (0.76, False), (0.74, True), (9.0, False)])
def test_a_ratio_may_fall_by_a_quarter(now: float, falls: bool) -> None:
    """A smaller loss is noise, a larger one is a regression, and a gain is neither."""
    found = regressions(results(grpc=1.0), results(grpc=now))
    assert found == ([Regression("produce", "grpc", 1.0, now)] if falls else [])


def test_times_are_not_compared() -> None:
    """A slow machine is slow for the baseline too."""
    slow = results(grpc=1.0)
    slow["produce"]["messages_per_s"] = 0.001
    assert regressions(results(grpc=1.0), slow) == []


@pytest.mark.parametrize("now", [results(), results(grpc=float("nan"))])
def test_a_ratio_that_is_gone_or_no_number_is_a_regression(now: dict[str, Figures]) -> None:
    """Not measuring is no way to pass."""
    assert [one.ratio for one in regressions(results(grpc=1.0), now)] == ["grpc"]


def test_the_command_says_what_fell_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 and a line with both numbers; 2 when there is nothing to compare."""
    before, now = tmp_path / "before", tmp_path / "now"
    before.mkdir()
    now.mkdir()
    (before / "produce.json").write_text('{"ratios": {"grpc": 1.0}}')
    command = ["guard", str(now), "--against", str(before)]
    monkeypatch.setattr("sys.argv", command)
    assert guard.main() == 2
    (now / "produce.json").write_text('{"ratios": {"grpc": 0.5}}')
    assert guard.main() == 1
    assert "produce: grpc: was 1.000, is 0.500" in capsys.readouterr().out
    (now / "produce.json").write_text('{"ratios": {"grpc": 0.9}}')
    assert guard.main() == 0
