"""A forked process is as good as a started one: exit code, files, signals, environment and parent."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from ortoo.verification.forks.forked_process import ForkedProcess
from ortoo.verification.forks.spawning import forking, spawn
from ortoo.verification.servers.command import environ

PIPE, NOTHING = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
ROLE = (sys.executable, "-m", "ortoo.namesrv")


@pytest.mark.parametrize("forks", [True, False])
async def test_exit_codes_words_and_standard_files_are_its_own(forks: bool) -> None:
    """Help ends with 0 on standard output, a wrong option with another code on standard error."""
    with forking(wanted=forks):
        helped = await spawn("ortoo", "--help", env=environ(""), stdin=PIPE, stdout=PIPE, stderr=PIPE)
        assert isinstance(helped, ForkedProcess) is forks
        out, error = await helped.communicate(b"")
        assert (helped.returncode, error) == (0, b"")
        assert b"Usage" in out
        wrong = await spawn("ortoo", "no-such", env=environ(""), stdin=PIPE, stdout=PIPE, stderr=PIPE)
        out, error = await wrong.communicate(b"")
        assert (wrong.returncode, out) == (2, b"")
        assert b"no-such" in error


@pytest.mark.parametrize("forks", [True, False])
async def test_a_role_takes_its_environment_and_its_signals(forks: bool, tmp_path: Path) -> None:
    """It reports that it is ready, stops at SIGSTOP, continues, ends with 0 at SIGTERM and with -9 at SIGKILL."""
    settings = {
        **os.environ,
        "ORTOO_NAMESRV_LISTEN_ADDRESS": "127.0.0.1:0",
        "ORTOO_NAMESRV_DATA_DIR": str(tmp_path / "data"),
    }
    with forking(wanted=forks), (tmp_path / "log").open("wb") as log:
        for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -9)):
            role = await spawn(*ROLE, env=settings, stdin=NOTHING, stdout=PIPE, stderr=log)
            assert role.stdout is not None
            assert (await role.stdout.readline()).startswith(b"ready ")
            role.send_signal(signal.SIGSTOP)
            options = os.WSTOPPED | os.WEXITED | os.WNOWAIT
            stopped = await asyncio.to_thread(os.waitid, os.P_PID, role.pid, options)
            assert stopped is not None
            assert stopped.si_status == signal.SIGSTOP
            role.send_signal(signal.SIGCONT)
            role.send_signal(number)
            assert await role.wait() == code
            assert role.returncode == code


async def test_other_programs_are_started(tmp_path: Path) -> None:
    """Only our own modules and the command are forked."""
    with forking():
        other = await spawn("true", env=os.environ, stdin=NOTHING, stdout=NOTHING, stderr=NOTHING)
        assert not isinstance(other, ForkedProcess)
        assert await other.wait() == 0


async def test_a_module_is_found_where_whoever_asks_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `python -m` finds it, wherever the server was started."""
    words = (sys.executable, "-m", "tests.hello")
    with forking():
        for folder in (tmp_path / "first", tmp_path / "second"):
            (folder / "tests").mkdir(parents=True)
            (folder / "tests/hello.py").write_text(f"print({folder.name!r})")
            monkeypatch.chdir(folder)
            process = await spawn(*words, env=environ(""), stdin=PIPE, stdout=PIPE, stderr=PIPE, preloaded=("json",))
            assert isinstance(process, ForkedProcess)
            assert await process.communicate(b"") == (f"{folder.name}\n".encode(), b"")
