"""Fork our processes from one that has imported all modules, which saves a second of imports each.

    python -m ortoo.verification.forks.fork_server DESCRIPTOR MODULE...

A forked process has its own number, signals, files, environment and exit code. It runs the module or command as its own
main program; only the imports are done. It becomes a child of the requesting process, which is a subreaper. Tests of
the start itself use `asyncio.create_subprocess_exec`.
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
    "ortoo.verification.simulation.run.command",
)  # fmt: skip
COMMANDS = {
    "ortoo": "ortoo.cli.app",
    **{f"ortoo-{role}": f"ortoo.{role}.__main__" for role in ("namesrv", "enode", "snode")},
}
"""Commands and the module whose `main` each one runs."""
OURS = ("ortoo.", "tests.")
REQUEST_BYTES_MAX = 1 << 20


class ForkServer:
    """The client side: one for a test process and a list of preloaded modules."""

    def __init__(self, preloaded: Sequence[str] = PRELOADED) -> None:
        """Start the server, which imports `preloaded` in the background."""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "ortoo.verification.forks.fork_server", str(theirs.fileno()), *preloaded]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ORTOO_")}
        self._server = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=clean, stdin=subprocess.DEVNULL)
        theirs.close()
        self._one_at_a_time = threading.Lock()

    def accepts(self, words: Sequence[str]) -> bool:
        """Whether `words` is a command that can be forked."""
        return words[0] in COMMANDS or (
            len(words) > 2 and words[0] == sys.executable and words[1] == "-m" and words[2].startswith(OURS)
        )

    def fork(self, words: Sequence[str], environ: Mapping[str, str], files: Sequence[int]) -> int:
        """Fork a command with these standard files; the number of its process, which is a child of this one."""
        request = json.dumps({"words": list(words), "environ": dict(environ), "folder": os.getcwd()}).encode()
        with self._one_at_a_time:  # answers do not name their request
            socket.send_fds(self._socket, [request], list(files))
            answer = self._socket.recv(32)
        if not answer:
            raise ConnectionError("the fork server has ended")
        return int(answer)

    def close(self) -> None:
        """End the server; processes that it forked keep running."""
        self._socket.close()
        self._server.wait()


def serve(link: socket.socket) -> dict[str, Any]:
    """Fork for each request; returns the request in the forked process. Ends when the client closes the link."""
    while True:
        data, files, _, _ = socket.recv_fds(link, REQUEST_BYTES_MAX, 3)
        if not data:
            os._exit(0)
        told, tell = os.pipe()
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            # The child is reparented to the client only when `between` has ended. The client may wait for it at once.
            link.send(os.read(told, 32))
            for descriptor in (*files, told, tell):
                os.close(descriptor)
            continue
        child = os.fork()
        if child:
            os.write(tell, str(child).encode())
            os._exit(0)  # so that the client becomes the child's parent
        os.close(told)
        os.close(tell)
        link.close()
        for number, descriptor in enumerate(files):
            os.dup2(descriptor, number)
            os.close(descriptor)
        request: dict[str, Any] = json.loads(data)
        return request


def end(code: int) -> None:
    """End as Python does, but keep the modules: taking them apart would copy every shared page."""
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
    sys.path[0] = os.getcwd()  # as for any `python -m`; the server has the folder of its own start
    sys.modules.pop(f"{words[2]}.__main__", None)  # its imports are done, but it runs again as the main program
    runpy.run_module(words[2], run_name="__main__", alter_sys=True)


def main() -> None:
    """Import the modules to preload, and serve."""
    link = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()  # imported modules are never garbage, and their memory stays shared
    gc.enable()
    request = serve(link)
    code: Any = 0
    try:
        become(request["words"], request["environ"], request["folder"])
    except SystemExit as ended:
        code = ended.code or 0
        if not isinstance(code, int):
            raise  # Python prints it on standard error
    end(code)


if __name__ == "__main__":
    main()
