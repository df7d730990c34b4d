"""An official client in a process of its own, as an object: commands are awaited, events are collected.

`await client("producer", name="p", topics=["t"])` starts producer `p`. `await client("send", name="p", topic="t",
body=b"hello")` sends with it. `await client.messages("c", 1)` returns the messages of push consumer `c`, once there is
one.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ortoo.verification.forks.spawning import Spawned, spawn

FOLDER = Path(__file__).parent
NODE_MODULES = FOLDER / "node/node_modules"
JAVA_BUILT = FOLDER / "java/.build"
GO_DRIVER = FOLDER / "go/.build/driver"
LANGUAGES = ("python", "node")
TYPED_LANGUAGES = ("java", "go")
"""The clients of these languages use TLS unless it is switched off."""
CALL_TIMEOUT_S = 100.0
LINE_BYTES_MAX = 64 << 20
LOG_PART = 20_000
"""The characters of a client's log that a failed test shows."""
PRELOADED = ("rocketmq", "rocketmq.grpc_protocol", "rocketmq.v5.exception")
"""The imports of the Python driver: its process is forked from one that has them, and has no module of this project."""
UNLUCKY_START = "'NoneType' object has no attribute 'shutdown'"

Fields = dict[str, Any]


class ClientError(Exception):
    """The error of the official client."""


class Events:
    """The events of one or several clients, in the order of their arrival."""

    def __init__(self) -> None:
        self.all: list[Fields] = []
        self._changed = asyncio.Condition()

    async def add(self, event: Fields) -> None:
        """Add an event."""
        async with self._changed:
            self.all.append(event)
            self._changed.notify_all()

    async def wait(self, count: int, wanted: Callable[[Fields], bool], timeout_s: float) -> list[Fields]:
        """The matching events, once there are `count`."""
        async with asyncio.timeout(timeout_s), self._changed:
            while len(found := [event for event in self.all if wanted(event)]) < count:
                await self._changed.wait()
        return found


class Official:
    """One process with an official client."""

    def __init__(self, process: Spawned, events: Events) -> None:
        self.events = events
        self._process = process
        self._one_at_a_time = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Fields]] = {}

    async def __call__(self, do: str, *, body: bytes | None = None, **fields: Any) -> Fields:
        """Run a command of the driver. Errors: ClientError with the client's own message.

        The start of the Python client sometimes fails on a busy machine by a bug of its own; then it is started again.
        """
        try:
            return await self._ask(do, body, fields)
        except ClientError as error:
            if UNLUCKY_START not in str(error):
                raise
        return await self._ask(do, body, fields)

    async def _ask(self, do: str, body: bytes | None, fields: Fields) -> Fields:
        number = next(self._numbers)
        ask: Fields = {"id": number, "do": do} | fields
        if body is not None:
            ask["body"] = base64.b64encode(body).decode()
        answer: asyncio.Future[Fields] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        await self._say(json.dumps(ask).encode() + b"\n")
        async with asyncio.timeout(CALL_TIMEOUT_S):
            said = await answer
        if "error" in said:
            raise ClientError(f"{do}: {said['error']}")
        return said

    async def _say(self, line: bytes) -> None:
        given = self._process.stdin
        assert given is not None
        if isinstance(given, int):  # a forked process's: the pipe itself, which takes 64 KiB before the driver reads
            async with self._one_at_a_time:
                while line:
                    line = line[await asyncio.to_thread(os.write, given, line) :]
        else:
            given.write(line)

    def close(self) -> None:
        """Close the standard input."""
        if isinstance(self._process.stdin, int):
            os.close(self._process.stdin)

    async def messages(self, consumer: str, count: int, *, timeout_s: float = CALL_TIMEOUT_S) -> list[Fields]:
        """The messages of a push consumer, once there are `count`."""
        return await self.events.wait(count, lambda e: e.get("consumer") == consumer, timeout_s)

    async def checks(self, count: int, *, timeout_s: float = CALL_TIMEOUT_S) -> list[Fields]:
        """The transactions that the producer was asked about, once there are `count`."""
        return await self.events.wait(count, lambda e: e["event"] == "check", timeout_s)

    async def listen(self) -> None:
        """Read the output of the process until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = json.loads(line)
            if "id" in said:
                for message in said.get("messages", ()):
                    message["body"] = base64.b64decode(message["body"])
                self._answers.pop(said["id"]).set_result(said)
            else:
                if "body" in said:
                    said["body"] = base64.b64decode(said["body"])
                await self.events.add(said)
        for answer in self._answers.values():
            if not answer.done():  # its caller may have been cancelled
                answer.set_exception(ClientError("the process ended"))


@contextlib.asynccontextmanager
async def official(
    language: str, address: str, events: Events | None = None, *, namespace: str = "", roots: Path | None = None
) -> AsyncIterator[Official]:
    """Start the official client of a language against a server; several may share `events`.

    With a `namespace` it runs in that network namespace. With `roots` the Python client uses TLS for servers whose
    certificates these sign. The clients for Java and Go use TLS by default and accept every certificate.
    """
    believing = {} if roots is None else {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(roots), "OFFICIAL_TLS": "1"}
    home = str(FOLDER / ".logs")
    environ = os.environ | believing | {"rocketmq.client.logRoot": home, "JAVA_TOOL_OPTIONS": f"-Duser.home={home}"}
    log = Path(tempfile.mkdtemp(prefix="official-")) / "client.log"
    environ["OFFICIAL_LOG"] = str(log)
    process: Spawned
    if language == "python" and not namespace:
        process = await spawn(
            *(sys.executable, "-m", "tests.official.driver", address),
            env=environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=sys.__stderr__,
            preloaded=PRELOADED,
        )
    else:
        process = await asyncio.create_subprocess_exec(
            *(("ip", "netns", "exec", namespace) if namespace else ()),
            *_command(language),
            address,
            env=environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
    client = Official(process, events or Events())
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(client.listen())
        try:
            yield client
        except BaseException:
            if log.exists():  # only the client for Python writes it
                sys.stdout.write(f"the log of the official client:\n{log.read_text()[-LOG_PART:]}")
            raise
        finally:
            shutil.rmtree(log.parent)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await listening
            client.close()


def _command(language: str) -> list[str]:
    if language == "python":
        return [sys.executable, str(FOLDER / "driver.py")]
    if language == "java":
        java = shutil.which("java")
        if java is None or not JAVA_BUILT.exists():
            pytest.skip("NO JAVA, the official Java client was NOT tested; install JDK 11+ and Maven, then `make test`")
        return [java, "-cp", f"{JAVA_BUILT}:{JAVA_BUILT}/*", "Driver"]
    if language == "go":
        if not GO_DRIVER.exists():
            pytest.skip("NO GO, the official Go client was NOT tested; install Go 1.23+, then `make test`")
        return [str(GO_DRIVER)]
    node = shutil.which("node")
    if node is None or not NODE_MODULES.exists():
        pytest.skip("NO NODE.JS, the official Node.js client was NOT tested; install Node.js 18+, then `make test`")
    return [node, str(FOLDER / "node/driver.js")]
