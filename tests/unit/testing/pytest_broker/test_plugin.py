"""The plugin as pytest sees it: modes of asyncio, seeds, reports, wrong use, and tests without it."""

import re
import subprocess
import sys

import pytest

from ortoo.testing.pytest_broker.durations import format_duration, seconds_of
from ortoo.testing.pytest_broker.options import options_of_mark

pytest_plugins = ["pytester"]

SENDS = """
    import asyncio, pytest
    from ortoo.client import connect

    @pytest.mark.ortoo(topics=["t"])
    async def test_sends(broker):
        async with connect() as mq, mq.producer("t") as producer:
            await producer.send(b"x")
            await asyncio.sleep(60)
        assert len(await broker.messages("t")) == 1
"""
FIXTURES = """
    import pytest, pytest_asyncio
    from ortoo.client import connect

    @pytest_asyncio.fixture
    async def early():
        yield "is there before the broker"

    @pytest_asyncio.fixture
    async def mq(broker):
        async with connect() as client:
            yield client

    @pytest.mark.asyncio
    @pytest.mark.ortoo(topics=["t"])
    async def test_sends(early, mq, broker):
        async with mq.producer("t") as producer:
            await producer.send(b"x")
        assert len(await broker.messages("t")) == 1
"""
FAILS = """
    import asyncio, pytest

    @pytest.mark.ortoo(topics=["t"])
    async def test_fails(broker):
        await broker.send("t", b"x")
        print("now", broker.clock.now_ms())
        assert False

    async def test_waits_for_ever(broker):
        await asyncio.Queue().get()
"""
WRONG = """
    import pytest

    def test_plain(broker): ...

    async def test_coroutine(blocking_broker): ...

    @pytest.mark.ortoo(7)
    async def test_positional(broker): ...

    @pytest.mark.ortoo(sed=7)
    async def test_unknown(broker): ...

    @pytest.mark.ortoo(enode={"no_such_setting": 1})
    async def test_setting(broker): ...

    @pytest.mark.asyncio(loop_scope="module")
    async def test_scope(broker): ...
"""
QUIET = "-Wdefault", "-oasyncio_default_fixture_loop_scope=function"


@pytest.mark.parametrize("options", [["-oasyncio_mode=auto"], ["-oasyncio_mode=strict"], ["-pno:asyncio"]])
def test_asynchronous_tests_run_in_every_mode(pytester: pytest.Pytester, options: list[str]) -> None:
    """With pytest-asyncio in either mode, and without it."""
    pytester.makepyfile(SENDS)
    pytester.runpytest_inprocess(*options, *(QUIET if "-pno:asyncio" not in options else QUIET[:1])).assert_outcomes(
        passed=1
    )


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_asynchronous_fixtures_live_on_the_same_loop(pytester: pytest.Pytester, mode: str) -> None:
    """Whether they are set up before or after the broker; and they end while it is still there."""
    pytester.makepyfile(FIXTURES)
    pytester.runpytest_inprocess(f"-oasyncio_mode={mode}", *QUIET).assert_outcomes(passed=1)


def test_a_failed_test_tells_its_seed_and_the_seed_repeats_it(pytester: pytest.Pytester) -> None:
    """Twice with the seed that was printed: the same words were said at the same times."""
    pytester.makepyfile(test_it=FAILS)
    first = pytester.runpytest_inprocess("-oasyncio_mode=auto", "-k", "fails", *QUIET)
    first.assert_outcomes(failed=1)
    (seed,) = re.findall(r"--ortoo-seed=(\d+)", first.stdout.str())
    again = pytester.runpytest_inprocess("-oasyncio_mode=auto", "-k", "fails", f"--ortoo-seed={seed}", *QUIET)
    other = pytester.runpytest_inprocess("-oasyncio_mode=auto", "-k", "fails", f"--ortoo-seed={int(seed) + 1}", *QUIET)
    said = [re.findall(r" > |^ *[\d.]+ s .*", run.stdout.str(), re.M) for run in (first, again, other)]
    assert any("ProducerService/Produce" in line for line in said[0])
    assert said[0] == said[1] != said[2]


def test_a_test_that_waits_for_ever_fails_and_says_where(pytester: pytest.Pytester) -> None:
    """The failure comes after the patience, with the line that waits."""
    pytester.makepyfile(test_it=FAILS)
    result = pytester.runpytest_inprocess("-oasyncio_mode=auto", "-k", "waits", "-oortoo_patience=1m", *QUIET)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r".*1m of virtual time passed and.*test_waits_for_ever:\d+ > Queue.get.*"])


@pytest.mark.filterwarnings("ignore")
def test_wrong_use_is_refused_in_words(pytester: pytest.Pytester) -> None:
    """Each mistake is named, with what to do, and without a trace of Python."""
    pytester.makepyfile(WRONG)
    result = pytester.runpytest_inprocess("-oasyncio_mode=auto", *QUIET)
    assert "errors=6" in str(result.parseoutcomes()).replace("'", "").replace(": ", "=")
    for words in (
        "test_plain is not an `async def`; use the fixture blocking_broker",
        "test_coroutine is an `async def`; use the fixture broker",
        r"@pytest.mark.ortoo takes names only \(seed, patience, topics, namesrv, enode, snode\), not \(7,\)",
        "@pytest.mark.ortoo has no option sed, expected: seed,",
        "no_such_setting",
        'have loop_scope="function"',
    ):
        assert re.search(words, result.stdout.str()), words


def test_nobody_pays_who_has_no_broker(pytester: pytest.Pytester) -> None:
    """A run without a broker imports nothing of it beside the plugin itself, and other tests keep their loops."""
    pytester.makepyfile("""
        import asyncio, sys

        async def test_other():
            assert type(asyncio.get_running_loop()).__module__.startswith("asyncio")
            found = [name for name in sys.modules if name.startswith(("ortoo.", "grpc", "numpy", "structlog"))]
            assert found == ["ortoo.testing", "ortoo.testing.pytest_broker", "ortoo.testing.pytest_broker.plugin"]
    """)
    command = [sys.executable, "-m", "pytest", "-q", "-oasyncio_mode=auto", *QUIET]
    ran = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, check=False)
    assert "1 passed" in ran.stdout, ran.stdout


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("2d", 172_800), ("500ms", 0.5), (7, 7), ("1.5h", 5400)]
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    """Units from ms to d, sums of them, and plain seconds."""
    assert seconds_of(text) == seconds


def test_durations_are_told_as_people_write_them() -> None:
    """The largest unit first."""
    assert [format_duration(seconds) for seconds in (0.5, 59, 5400, 90_061)] == ["0.5s", "59s", "1h30m", "1d1h1m1s"]


def test_the_command_line_goes_before_the_mark() -> None:
    """A seed that somebody wants to see again is the one that runs."""
    assert options_of_mark({"seed": 3}, (), seed=5, patience="1m", seed_is_given=True).seed == 5
    assert options_of_mark({"seed": 3}, (), seed=5, patience="1m", seed_is_given=False).seed == 3
    with pytest.raises(ValueError, match=r"topics=\['orders'\]"):
        options_of_mark({"topics": "orders"}, (), seed=5, patience="1m", seed_is_given=False)
