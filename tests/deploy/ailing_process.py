"""The process of an enode or a replica whose machine can be made faulty."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ortoo.verification.servers.processes import RoleProcess
from tests.deploy import ailing_enode
from tests.deploy.ailing_enode import Ailments
from tests.repo.tree import ROOT


class AilingProcess(RoleProcess):
    """A role that runs `ailing_enode` in the place of its own program."""

    def __init__(self, role: str, folder: Path, environ: Mapping[str, object]) -> None:
        """In `folder`, on a healthy machine."""
        super().__init__(role, folder, dict(environ))
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "ailments.json"
        self.ailments = Ailments()
        """The faults of its machine."""
        self.ail()
        self.environ_more = {ailing_enode.FILE: str(self._file), "PYTHONPATH": str(ROOT)}

    def ail(self, **changes: Any) -> None:
        """Change the faults of the machine: fields of `Ailments`. The others stay."""
        self.ailments = replace(self.ailments, **changes)
        self.ailments.write(self._file)

    def _command(self, listen_address: str) -> Sequence[str]:
        return (sys.executable, "-m", ailing_enode.__name__, *self.arguments)
