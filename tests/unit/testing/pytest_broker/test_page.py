"""docs/testing-your-code.md: its programs and tests, run by a pytest of their own."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time

import pytest

pytest_plugins = ["pytester"]
PAGE = Path(__file__).parents[4] / "docs/testing-your-code.md"
IN_A_SECOND = 2.0
"""Processor seconds: half of it where no other process uses the core's caches."""


class Spent:
    """How much processor time tests take that have their broker: nothing in them waits, so it is all that they take."""

    def __init__(self) -> None:
        """None yet."""
        self.seconds = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """Count one test."""
        before_s = process_time()
        yield
        self.seconds += process_time() - before_s


def programs() -> dict[str, str]:
    """The files of the page, by the name in their first line."""
    blocks = re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    return dict(blocks)


@pytest.mark.parametrize("mode", ["auto", "none"])
def test_the_order_service_of_the_page_is_tested_in_a_second(pytester: pytest.Pytester, mode: str) -> None:
    """Four days of retries, reports and a killed broker take less than a second, with pytest-asyncio or without."""
    pytester.makepyfile(**{name.removesuffix(".py"): text for name, text in programs().items() if "orders" in name})
    options = ["-p", "no:asyncio"] if mode == "none" else ["-o", "asyncio_mode=auto"]
    spent = Spent()
    pytester.runpytest_inprocess(*options, "-Wdefault", plugins=[spent]).assert_outcomes(passed=4)
    assert spent.seconds < IN_A_SECOND


@pytest.mark.parametrize("name", ["test_blocking.py", "test_port.py"])
def test_the_other_programs_of_the_page_pass(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A blocking client on virtual time, and another process at a real port."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    pytester.makepyfile(**{name.removesuffix(".py"): programs()[name]})
    pytester.runpytest_inprocess("-Wdefault").assert_outcomes(passed=1)
