"""docs/programs.md: its program and its tests, run by a pytest of their own."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
PAGE = Path(__file__).parents[4] / "docs/programs.md"


def test_the_program_of_the_page_passes_its_tests(pytester: pytest.Pytester) -> None:
    """Retries after ten minutes and an hour, a dead letter with the error, and one for what is no order."""
    blocks = re.findall(r"^```python\n# (\S+)\.py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    pytester.makepyfile(**dict(blocks))
    pytester.runpytest_inprocess("-o", "asyncio_mode=auto", "-Wdefault").assert_outcomes(passed=3)
