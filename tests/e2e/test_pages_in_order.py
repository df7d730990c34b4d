"""A newcomer follows README, tutorial, how-to and programs, in this order, on one `ortoo dev`."""

import asyncio
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from ortoo.client import connect
from ortoo.common.process.clock import SystemClock
from ortoo.verification.forks.spawning import spawn
from ortoo.verification.servers import command
from ortoo.verification.servers.command import DevProcess
from tests.e2e.test_documents import as_a_shell_takes, says, steps
from tests.e2e.test_readme import lines_of
from tests.repo.tree import ROOT

PROGRAMS = dict(re.findall(r"^```python\n# (\S+)\.py\n(.*?)^```", (ROOT / "docs/programs.md").read_text(), re.S | re.M))
UNFIT = """
from ortoo.client import App

app = App("invoices")


@app.consumer("bookings")
async def take(body: bytes) -> None: ...


app.run()
"""


async def typed(words: Sequence[str], dev: DevProcess, *, until_output: str = "") -> str:
    """The output of a command that succeeds."""
    outcome = await command.run(words, dev.address, until_output=until_output, timeout_s=120)
    assert outcome.exit_code == 0, (words, outcome)
    return outcome.stdout


async def follow_readme(dev: DevProcess) -> None:
    """The commands, the calls of grpcurl and the program."""
    create, send, tail = lines_of("ortoo")
    await typed(create, dev)
    await typed(send, dev)
    await typed(tail, dev, until_output="hello")
    for words in lines_of("grpcurl"):
        await typed([word.replace("localhost:8081", dev.address) for word in words], dev)
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    await typed([sys.executable, "-c", program.replace("localhost:8081", dev.address)], dev)


async def follow_steps(page: str, dev: DevProcess, folder: Path) -> None:
    """Each step of a page, with the output that the page shows."""
    program = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S)
    (folder / "invoices.py").write_text("".join(program))
    for words, expected in steps(page):
        script = words.replace("python invoices.py", f"{sys.executable} {folder / 'invoices.py'}")
        printed = await typed(as_a_shell_takes(script), dev)
        assert says(printed, expected), (words, expected, printed)


async def follow_program(name: str, dev: DevProcess, folder: Path) -> None:
    """Run a program and the commands below it until the page's outcome is there, then stop the program."""
    file = folder / f"{name}.py"
    file.write_text(PROGRAMS[name].replace("localhost:8081", dev.address))
    text = (ROOT / "docs/programs.md").read_text().partition(f"# {name}.py\n")[2]
    (block,) = re.findall(r"```bash\n(.*?)```", text, re.S)[:1]
    create, start, *sends = [line.partition("  #")[0].strip() for line in block.splitlines()]
    assert start == f"python {name}.py &"
    await typed(as_a_shell_takes(create), dev)
    silent = asyncio.subprocess.DEVNULL
    environ = command.environ(dev.address)
    process = await spawn(sys.executable, str(file), env=environ, stdin=silent, stdout=silent, stderr=silent)
    try:
        *sends, look = sends
        for words in sends:
            await typed(as_a_shell_takes(words), dev)
        async with asyncio.timeout(120), connect(dev.address) as mq:
            clock = SystemClock()
            while name not in {group.name for group in await mq.admin.list_groups()}:
                await clock.sleep(0.1)  # the program makes it when its consumer has joined
            if name == "quick":
                while "ZeroDivisionError" not in await typed(as_a_shell_takes(look), dev):
                    await clock.sleep(0.1)
            else:
                while not [one async for one in mq.admin.tail("receipts", from_beginning=True, follow=False)]:
                    await clock.sleep(0.1)
                await typed(as_a_shell_takes(look), dev)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_pages_can_be_followed_in_order(tmp_path: Path) -> None:
    """No name of one page is in the way of the next. A program that cannot run ends with one line."""
    async with command.dev_process(tmp_path) as dev:
        await follow_readme(dev)
        for page in ("tutorial.md", "how-to.md"):
            await follow_steps(page, dev, tmp_path)
        for name in ("quick", "billing"):
            await follow_program(name, dev, tmp_path)
        unfit = await command.run([sys.executable, "-c", UNFIT], dev.address, timeout_s=120)
        assert unfit.exit_code == 1
        (line,) = unfit.stderr.splitlines()
        assert line.startswith("error: invoices: ")
