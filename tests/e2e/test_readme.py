"""The README's commands, taken from the README itself, against `ortoo dev`."""

import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ortoo.verification.servers import command
from ortoo.verification.servers.command import DevProcess

README = Path(__file__).parents[2] / "README.md"


def lines_of(program: str) -> list[list[str]]:
    """The README's command lines that begin with `program`, as words."""
    blocks = re.findall(r"```bash\n(.*?)```", README.read_text(), re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines() if line.startswith(program + " ")]


@pytest.fixture
async def dev(tmp_path: Path) -> AsyncIterator[DevProcess]:
    """A running `ortoo dev`."""
    async with command.dev_process(tmp_path) as running:
        yield running


async def test_three_steps_with_the_command(dev: DevProcess) -> None:
    """E-013: create a topic, send a message, see it with `tail`, each in one line as in the README."""
    create, send, tail = lines_of("ortoo")
    for words, expected in ((create, "topic t is ready"), (send, "stored ")):
        outcome = await command.run(words, dev.address)
        assert (outcome.exit_code, outcome.stderr) == (0, "")
        assert expected in outcome.stdout
    outcome = await command.run(tail, dev.address, until_output="hello")
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (0, "hello\n", "")


async def test_three_steps_with_grpcurl_alone(dev: DevProcess) -> None:
    """The same three steps with nothing but grpcurl and reflection."""
    create, publish, tail = lines_of("grpcurl")
    for words, expected in ((create, '"name": "g"'), (publish, '"message_id"'), (tail, '"body_text": "hello"')):
        outcome = await command.run([w.replace("localhost:8081", dev.address) for w in words], dev.address)
        assert (outcome.exit_code, outcome.stderr) == (0, "")
        assert expected in outcome.stdout


async def test_grpcurl_explains_the_interface(dev: DevProcess) -> None:
    """`list` names the services, `describe` gives the calls of one and the fields of a message."""
    listed = await command.run(["grpcurl", "-plaintext", dev.address, "list"], dev.address)
    services = {"ortoo.v1.ProducerService", "ortoo.v1.ConsumerService", "ortoo.v1.AdminService"}
    assert services < set(listed.stdout.split())
    for symbol, expected in (
        ("ortoo.v1.ProducerService", "rpc Publish ( .ortoo.v1.PublishRequest ) returns ( .ortoo.v1.PublishResponse );"),
        ("ortoo.v1.PublishRequest", "repeated .ortoo.v1.Message messages = 2;"),
    ):
        described = await command.run(["grpcurl", "-plaintext", dev.address, "describe", symbol], dev.address)
        assert expected in described.stdout


async def test_messages_outlive_the_cluster(tmp_path: Path) -> None:
    """Messages sent before `ortoo dev` was killed or stopped are there after its restart (G1)."""
    for number, end in enumerate(("kill", "stop", "look")):
        async with command.dev_process(tmp_path) as dev:
            if number == 0:
                assert (await command.run(["ortoo", "topic", "create", "t"], dev.address)).exit_code == 0
            assert (await command.run(["ortoo", "send", "t", f"message {number}"], dev.address)).exit_code == 0
            if end == "kill":
                await dev.kill()
            elif end == "stop":
                assert await dev.stop() == 0
            else:
                tail = ["ortoo", "tail", "t", "--from-first", "--no-follow"]
                shown = await command.run(tail, dev.address)
                assert shown.stdout.splitlines() == ["message 0", "message 1", "message 2"]


WRONG = {
    "negative queue count": (["topic", "create", "t", "--queues", "-1"], ["-1"]),
    "too many queues": (["topic", "create", "t", "--queues", "5000"], ["5000", "1024"]),
    "illegal topic name": (["topic", "create", "a b"], ["a b", "letters"]),
    "unknown topic to send to": (["send", "nowhere", "x"], ["nowhere", "create"]),
    "unknown topic to tail": (["tail", "nowhere"], ["nowhere"]),
    "unknown topic to describe": (["topic", "describe", "nowhere"], ["nowhere"]),
    "unknown topic to delete": (["topic", "delete", "nowhere"], ["nowhere"]),
    "empty body": (["send", "t", ""], ["empty"]),
    "property without a value": (["send", "t", "x", "--property", "name"], ["NAME=VALUE"]),
    "address that is none": (["topic", "list", "--address", "nowhere"], ["nowhere", "host:port"]),
    "no server there": (["topic", "list", "--address", "127.0.0.1:1"], ["127.0.0.1:1", "a snode is running"]),
}


async def test_wrong_commands_are_refused_by_name(dev: DevProcess) -> None:
    """Each wrong command ends with an exit code other than 0 and a text that names the mistake, without a traceback."""
    assert (await command.run(["ortoo", "topic", "create", "t"], dev.address)).exit_code == 0
    told = {}
    for what, (words, expected) in WRONG.items():
        outcome = await command.run(["ortoo", *words], dev.address)
        missing = [word for word in expected if word not in outcome.stderr]
        if outcome.exit_code == 0 or missing or "Traceback" in outcome.stderr or outcome.stdout:
            told[what] = outcome
    assert told == {}
    described = await command.run(["ortoo", "topic", "describe", "t"], dev.address)
    assert "0 messages" in described.stdout


async def test_second_dev_on_the_same_folder_or_port_is_refused(dev: DevProcess, tmp_path: Path) -> None:
    """A second `ortoo dev` names the folder or port that is taken and ends; the first one keeps running."""
    for words, expected in (
        (["--data-dir", str(tmp_path / "data"), "--listen-address", "127.0.0.1:0"], "stop it, or give"),
        (["--data-dir", str(tmp_path / "other"), "--listen-address", dev.address], "the port is taken"),
    ):
        outcome = await command.run(["ortoo", "dev", *words], dev.address)
        assert outcome.exit_code != 0
        assert expected in outcome.stderr
        assert "Traceback" not in outcome.stderr
    assert (await command.run(["ortoo", "topic", "create", "t"], dev.address)).exit_code == 0
