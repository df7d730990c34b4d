"""docs/programs.md: its program and its tests, run by a pytest of their own."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
PAGE = Path(__file__).parents[4] / "docs/programs.md"
QUICK_TEST = """
import pytest
from quick import app

from ortoo.client import connect

@pytest.mark.ortoo(topics=["orders"], seed=619463331)  # the retry of a second is due as time is about to leap
async def test_quick(broker, capsys):
    async with connect() as mq, app.running(mq):
        await broker.send("orders", b'{"number": "o-1", "cents": 50}', b'{"number": "o-2", "cents": 0}')
        await broker.clock.advance("1d")
    assert capsys.readouterr().out == "charged o-1 2\\n"
    (letter,) = await broker.dead_letters("quick")
    assert (letter.attempts, letter.reason) == (3, "attempts")
    assert letter.error.startswith("ZeroDivisionError")
"""


def blocks() -> dict[str, str]:
    """The files of the page, by name."""
    return dict(re.findall(r"^```python\n# (\S+)\.py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M))


def test_the_programs_of_the_page_pass_their_tests(pytester: pytest.Pytester) -> None:
    """Retries after ten minutes and an hour, a dead letter with the error, and one for what is no order.

    The first program is a consumer with retries and dead letters in fifteen lines; of it comes what the page says.
    """
    files = blocks()
    assert len([line for line in files["quick"].splitlines() if line]) <= 15
    pytester.makepyfile(**files, test_quick=QUICK_TEST)
    pytester.runpytest_inprocess("-o", "asyncio_mode=auto", "-Wdefault").assert_outcomes(passed=4)
