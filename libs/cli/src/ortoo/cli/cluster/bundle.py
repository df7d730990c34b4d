"""`ortoo bundle`: the state of a cluster in one file, for supporters without access to the cluster."""

import io
import re
import tarfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ortoo.cli.terminal.output import CommandOutput, json_lines
from ortoo.common.errors import OrtooError
from ortoo.common.errors.findings import process_version
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.masked_url import MASK, mask_url

if TYPE_CHECKING:
    from ortoo.client import Client

ROLES = ("namesrv", "enode", "snode")
SECRET = re.compile("secret|password|token|credential", re.IGNORECASE)
"""Names of values that are left out, besides the passwords of URLs."""


async def bundle(
    mq: "Client", file: Annotated[Path, typer.Argument(help="The file to write, such as cluster.tar.gz.")]
) -> CommandOutput:
    """Write the state of a cluster to a file without secrets and without messages, for a support request.

    A part that cannot be read is replaced by its error.
    """
    admin, operations = mq.admin, mq.admin.operations
    parts: dict[str, Callable[[], Awaitable[Any]]] = {
        "cluster": admin.describe_cluster,
        "findings": lambda: operations.list_findings(timeout_s=10.0),
        "topics": admin.list_topics,
        "topics-deleted": admin.list_deleted_topics,
        "topics-offered": admin.list_orphaned_topics,
        "groups": admin.list_groups,
        "groups-deleted": admin.list_deleted_groups,
        "clients": admin.groups.list_clients,
        "replicas": admin.replicas.list,
        "transactions": admin.list_transactions,
        "users": admin.users.list,
    }
    for role in ROLES:
        parts[f"settings-{role}"] = _call(operations.list_settings, role)
        parts[f"settings-{role}-history"] = _call(operations.list_setting_changes, role)
    now_s, failed = SystemClock().now_ms() // 1000, list[str]()
    with tarfile.open(file, "w:gz") as archive:
        _add(archive, "version.txt", f"ortoo {process_version()}\n", now_s)
        for name, read in parts.items():
            try:
                text = "".join(f"{line}\n" for line in json_lines(without_secrets(await read())))
                _add(archive, f"{name}.jsonl", text, now_s)
            except OrtooError as error:
                failed.append(name)
                _add(archive, f"{name}.error.txt", f"{mask_url(str(error))}\n", now_s)
    lines = [f"wrote {file} with {len(parts) - len(failed)} of {len(parts)} parts, without secrets and messages"]
    if failed:
        lines.append(f"parts that could not be read: {', '.join(failed)}")
    return CommandOutput({"file": str(file), "parts": list(parts), "failed": failed}, lines)


def without_secrets(value: Any, name: str = "") -> Any:
    """A value of the client as plain data, with secrets and the passwords of URLs replaced."""
    if hasattr(value, "__dataclass_fields__"):
        value = {field: getattr(value, field) for field in value.__dataclass_fields__}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {key: without_secrets(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [without_secrets(one, name) for one in value]
    if isinstance(value, str):
        return MASK if value and SECRET.search(name) and not name.endswith("_file") else mask_url(value)
    return value


def _call(work: Callable[[str], Awaitable[Any]], role: str) -> Callable[[], Awaitable[Any]]:
    return lambda: work(role)


def _add(archive: tarfile.TarFile, name: str, text: str, now_s: int) -> None:
    content = text.encode()
    entry = tarfile.TarInfo(f"ortoo-bundle/{name}")
    entry.size, entry.mtime, entry.mode = len(content), now_s, 0o600
    archive.addfile(entry, io.BytesIO(content))
