"""Processes of ours without the second that their imports take: forked from one that has imported everything.

    python -m ortoo.testing.forks.fork_server DESCRIPTOR MODULE...

A forked process has its own number, signals, files, environment and exit code, and runs the module or command as its
own main program; only the imports are done. It becomes a child of whoever asked, which is a subreaper.
Tests of the start itself take the real thing: `asyncio.create_subprocess_exec`.
"""

import atexit
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
PRELOADED = (
    "ortoo.namesrv.__main__", "ortoo.enode.__main__", "ortoo.snode.__main__", "ortoo.cli.app", "ortoo.cli.dev.cluster",
    "ortoo.client.blocking", "ortoo.cli.doctor.run", "ortoo.namesrv.app", "ortoo.enode.app", "ortoo.snode.app",
    "typer.rich_utils", "typer._adapters", "pydantic.types", "sqlalchemy.dialects.sqlite",  # imported late elsewhere
    "ortoo.testing.simulation.run.command",
)  # fmt: skip
COMMANDS = {
    "ortoo": "ortoo.cli.app",
    **{f"ortoo-{role}": f"ortoo.{role}.__main__" for role in ("namesrv", "enode", "snode")},
}
"""Each command to the module with its `main`."""
OURS = ("ortoo.", "tests.")
REQUEST_BYTES_MAX = 1 << 20


class ForkServer:
    """The asking side. One for a process that tests, and for what is imported before a fork."""

    def __init__(self, preloaded: Sequence[str] = PRELOADED) -> None:
        """Start the server; it imports these modules while others go on."""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "ortoo.testing.forks.fork_server", str(theirs.fileno()), *preloaded]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ORTOO_")}
        self._server = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=clean, stdin=subprocess.DEVNULL)
        theirs.close()
        self._one_at_a_time = threading.Lock()

    def takes(self, words: Sequence[str]) -> bool:
        """Whether this is a command that can be forked."""
        return words[0] in COMMANDS or (
            len(words) > 2 and words[0] == sys.executable and words[1] == "-m" and words[2].startswith(OURS)
        )

    def fork(self, words: Sequence[str], environ: Mapping[str, str], files: Sequence[int]) -> int:
        """Run a command with these standard files; the number of its process, which is this one's child."""
        request = json.dumps({"words": list(words), "environ": dict(environ), "folder": os.getcwd()}).encode()
        with self._one_at_a_time:  # answers do not say whose they are
            socket.send_fds(self._socket, [request], list(files))
            answer = self._socket.recv(32)
        if not answer:
            raise ConnectionError("the fork server has ended")
        return int(answer)

    def close(self) -> None:
        """End the server; what it forked goes on."""
        self._socket.close()
        self._server.wait()


def serve(link: socket.socket) -> dict[str, Any]:
    """Fork for each request; returns, in a forked process, what it is to do. Ends with whoever asks."""
    while True:
        data, files, _, _ = socket.recv_fds(link, REQUEST_BYTES_MAX, 3)
        if not data:
            os._exit(0)
        told, tell = os.pipe()
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            # Not before: until it has ended its child is not that of whoever asked, who may wait for it at once.
            link.send(os.read(told, 32))
            for descriptor in (*files, told, tell):
                os.close(descriptor)
            continue
        child = os.fork()
        if child:
            os.write(tell, str(child).encode())
            os._exit(0)  # so that the child gets another parent
        os.close(told)
        os.close(tell)
        link.close()
        for number, descriptor in enumerate(files):
            os.dup2(descriptor, number)
            os.close(descriptor)
        request: dict[str, Any] = json.loads(data)
        return request


def end(code: int) -> None:
    """End as Python does, less the taking apart of each module: of memory that is shared, that copies every page."""
    threading._shutdown()  # type: ignore[attr-defined]  # joins threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def become(words: Sequence[str], environ: Mapping[str, str], folder: str) -> None:
    """Run a command as the main program of this process."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    if environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    if words[0] in COMMANDS:
        sys.argv = list(words)
        sys.exit(importlib.import_module(COMMANDS[words[0]]).main())
    sys.argv = list(words[2:])
    sys.path[0] = os.getcwd()  # as for any `python -m`; the server's own is where it was started
    sys.modules.pop(f"{words[2]}.__main__", None)  # its imports are done; it itself is run
    runpy.run_module(words[2], run_name="__main__", alter_sys=True)


def main() -> None:
    """Import what is to be forked, and serve."""
    link = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()  # what was imported is never garbage, and its memory stays shared
    gc.enable()
    request = serve(link)
    code: Any = 0
    try:
        become(request["words"], request["environ"], request["folder"])
    except SystemExit as ended:
        code = ended.code or 0
        if not isinstance(code, int):
            raise  # it is said on standard error
    end(code)


if __name__ == "__main__":
    main()
