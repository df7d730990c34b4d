"""The output of the `ortoo` command against a running `ortoo dev`, for people and for programs."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo import client as ortoo
from ortoo.verification.servers import command
from ortoo.verification.servers.command import DevProcess


@pytest.fixture
async def dev(tmp_path: Path) -> AsyncIterator[DevProcess]:
    """A running `ortoo dev`."""
    async with command.dev_process(tmp_path) as running:
        yield running


async def _json(dev: DevProcess, *words: str, given: bytes = b"") -> list[dict[str, object]]:
    """The objects that a command prints with --json, one a line. The command must succeed."""
    outcome = await command.run(["ortoo", *words, "--json"], dev.address, stdin_text=given)
    assert outcome.exit_code == 0, outcome.stderr
    return [json.loads(line) for line in outcome.stdout.splitlines()]


async def test_json_answers_are_for_programs(dev: DevProcess) -> None:
    """Each command with --json prints one JSON object a line, with the data that was sent."""
    [created] = await _json(dev, "topic", "create", "t", "--queues", "2")
    assert created["name"] == "t"
    [receipt] = await _json(dev, "send", "t", "hello", "--tag", "red", "--key", "k", "--property", "a=b=c")
    [shown] = await _json(dev, "tail", "t", "-n", "1")
    assert shown["message_id"] == receipt["message_id"]
    assert (shown["body"], shown["tag"], shown["keys"], shown["properties"]) == ("hello", "red", ["k"], {"a": "b=c"})
    async with ortoo.connect(dev.address) as mq:
        await mq.admin.put_group("readers")
    [behind] = await _json(dev, "lag", "readers", "t")
    assert behind["lag_messages"] == "1"
    [found] = await _json(dev, "cluster")
    assert {role: len(found[role]) for role in ("enodes", "snodes")} == {"enodes": 1, "snodes": 1}  # type: ignore[arg-type]
    [deleted] = await _json(dev, "topic", "delete", "t")
    assert deleted == {"deleted": "t"}
    assert "t" not in [topic["name"] for topic in await _json(dev, "topic", "list")]


@pytest.mark.parametrize("body", [[], ["-"]])
async def test_each_line_of_standard_input_is_a_message(dev: DevProcess, body: list[str]) -> None:
    """Without a body, or with "-", every line is sent; a message group keeps their order."""
    await _json(dev, "topic", "create", "t")
    receipts = await _json(dev, "send", "t", *body, "--group", "g", given=b"one\ntwo\nthree\n")
    assert len(receipts) == 3
    outcome = await command.run(["ortoo", "tail", "t", "--from-first", "-n", "3"], dev.address)
    assert (outcome.exit_code, outcome.stdout.split()) == (0, ["one", "two", "three"])


async def test_what_exists_already_is_not_reported_as_new(dev: DevProcess) -> None:
    """Creating a topic again succeeds and changes nothing. A duplicate is reported as not stored."""
    for _ in range(2):
        outcome = await command.run(["ortoo", "topic", "create", "t"], dev.address)
        assert outcome.stdout == "topic t is ready with 4 queues\n"
    for start in ("stored ", "not stored: a message with this dedup id is "):
        outcome = await command.run(["ortoo", "send", "t", "hello", "--dedup-id", "one"], dev.address)
        assert outcome.stdout.startswith(start)


async def test_errors_say_what_and_what_to_do(dev: DevProcess) -> None:
    """A named error is one line on standard error, exit code 1 and nothing on standard output."""
    await _json(dev, "topic", "create", "t")
    for words, said in (
        (["send", "nope", "x"], "nope"),
        (["tail", "nope"], "nope"),
        (["topic", "create", "t", "--queues", "9"], "exists with"),
        (["topic", "delete", "nope"], "nope"),
        (["topic", "list", "--address", "localhost:1"], "localhost:1"),
    ):
        outcome = await command.run(["ortoo", *words], dev.address)
        assert (outcome.exit_code, outcome.stdout) == (1, ""), words
        assert outcome.stderr.startswith("error: "), outcome.stderr
        assert outcome.stderr.count("\n") == 1, outcome.stderr
        assert said in outcome.stderr


async def test_dev_names_a_folder_in_use(dev: DevProcess) -> None:
    """A second `ortoo dev` on the same folder ends with a line that names the folder; the first one keeps running."""
    words = ["ortoo", "dev", "--listen-address", "127.0.0.1:0", "--data-dir", str(dev.data)]
    outcome = await command.run(words, dev.address)
    assert outcome.exit_code != 0
    assert str(dev.data) in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert (await command.run(["ortoo", "topic", "list"], dev.address)).exit_code == 0


async def test_dev_keeps_its_data_over_a_clean_stop(tmp_path: Path) -> None:
    """SIGTERM ends `ortoo dev` with exit code 0; sent messages are there after the next start."""
    async with command.dev_process(tmp_path) as dev:
        await _json(dev, "topic", "create", "t")
        await _json(dev, "send", "t", "kept")
        assert await dev.stop() == 0
    async with command.dev_process(tmp_path) as dev:
        [shown] = await _json(dev, "tail", "t", "-n", "1")
        assert shown["body"] == "kept"


@pytest.mark.parametrize(
    ("options", "is_served"), [((), True), (("--console", "127.0.0.1:0"), True), (("--console", ""), False)]
)
async def test_dev_serves_a_console_unless_it_is_told_not_to(
    tmp_path: Path, options: tuple[str, ...], is_served: bool
) -> None:
    """With its address in the output."""
    words = ["ortoo", "dev", "--listen-address", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), *options]
    outcome = await command.run(words, "", until_output="ready on")
    assert outcome.exit_code == 0
    assert ("web console: http://127.0.0.1:" in outcome.stdout) == is_served


async def test_groups_and_clients_are_shown_and_moved(dev: DevProcess) -> None:
    """Group members, lag in all topics of a group, queues of a client, a reset, a changed group and a changed topic."""
    await _json(dev, "topic", "create", "t", "--queues", "1")
    settings = ortoo.PullSettings(from_beginning=True)
    async with ortoo.connect(dev.address, client_id="worker") as mq:
        async with mq.producer("t") as producer:
            await (await producer.send_many([b"1", b"2", b"3"]))
        async with mq.pull_consumer("readers", "t", settings) as consumer:
            batch = await consumer.poll(15_000)
            assert batch is not None
            batch.ack()
            await consumer.commit()
            [described] = await _json(dev, "group", "describe", "readers")
            assert described["members"][0]["client_id"] == "worker"  # type: ignore[index]
            [behind] = await _json(dev, "lag", "readers")
            assert (behind["topic"], behind["lag_messages"]) == ("t", str(3 - len(batch)))
            shown = await command.run(["ortoo", "clients", "worker"], dev.address)
            assert "python" in shown.stdout
            assert "readers" in shown.stdout
            [listed] = await _json(dev, "clients", "--group", "readers")
            assert listed["client_id"] == "worker"
        [moved] = await _json(dev, "reset-offset", "readers", "t", "--to", "begin")
        assert moved["offset"] == "0"
    [changed] = await _json(dev, "group", "update", "readers", "--slow-messages", "7")
    assert changed["slow_consumer_threshold_messages"] == 7
    [grown] = await _json(dev, "topic", "update", "t", "--queues", "2")
    assert grown["placements"][0]["read_queue_count"] == 2  # type: ignore[index]
    wrong = await command.run(["ortoo", "reset-offset", "readers", "t", "--to", "yesterday"], dev.address)
    assert (wrong.exit_code, wrong.stdout) == (1, "")
    assert "2026-01-31T12:00:00Z" in wrong.stderr
