"""The command line of all three roles: the same options, the same exit codes, settings printed and reloaded."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from ortoo.client import connect
from ortoo.common.process.service import EXIT_FAILED
from ortoo.verification.forks import spawning
from ortoo.verification.servers.processes import DidNotStart, ProcessCluster, RoleProcess, process_cluster

ROLES = ("namesrv", "enode", "snode")
every_role = pytest.mark.parametrize("role", ROLES)


async def outcome(role: str, *arguments: str, environ: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Run a role's process to its end: exit code, standard output, standard error."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ORTOO_")}
    return await spawning.outcome(sys.executable, "-m", f"ortoo.{role}", *arguments, env=clean | dict(environ or {}))


@every_role
async def test_settings_are_printed_with_their_origin_and_no_port_is_opened(tmp_path: Path, role: str) -> None:
    """`-p` prints every setting in force, as a file that can be loaded again; the port may be taken (E-001)."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        file = tmp_path / "settings.toml"
        file.write_text(f'name = "from-file"\nlisten_address = "{address}"\nlog_level = "warning"\n')
        upper = {f"ORTOO_{role.upper()}_LOG_LEVEL": "error"}
        code, everything, error = await outcome(role, "-c", str(file), "-n", "h:1;h:2", "-p", environ=upper)
    assert (code, error) == (0, "")
    values = tomllib.loads(everything)
    assert (values["name"], values["listen_address"]) == ("from-file", address)
    assert 'name = "from-file"  # file' in everything
    assert 'namesrv_address = "h:1;h:2"  # command line' in everything
    assert 'log_level = "error"  # environment' in everything
    assert re.search(r"^stop_grace_s = 5.0  # default$", everything, re.MULTILINE)
    again = tmp_path / "again.toml"
    again.write_text(everything)
    assert tomllib.loads((await outcome(role, "-c", str(again), "-p"))[1]) == values


@every_role
async def test_important_settings_are_some_of_all(role: str) -> None:
    """`-m` prints a strict subset of `-p`, and `-p -m` is `-p` (E-002)."""
    (code_p, everything, _), (code_m, important, _), (code_both, both, _) = await asyncio.gather(
        outcome(role, "-p"), outcome(role, "-m"), outcome(role, "-p", "-m")
    )
    assert (code_p, code_m, code_both) == (0, 0, 0)
    assert set() < set(important.splitlines()) < set(everything.splitlines())
    assert both == everything


async def test_password_in_a_url_is_not_printed() -> None:
    """The output of `-p` can be published without exposing the database's password."""
    environ = {"ORTOO_NAMESRV_DATABASE_URL": "postgresql+psycopg://ortoo:geheim@db/ortoo"}
    code, everything, _ = await outcome("namesrv", "-p", environ=environ)
    assert (code, "geheim" in everything) == (0, False)
    assert "postgresql+psycopg://ortoo:***@db/ortoo" in everything


async def test_option_beats_the_file(processes: ProcessCluster, tmp_path: Path) -> None:
    """A process whose file names one name server and whose `-n` names another registers at the latter (E-003)."""
    file = tmp_path / "snode.toml"
    file.write_text('namesrv_address = "127.0.0.1:1"\n')
    await processes.snode.stop()
    del processes.snode.environ["NAMESRV_ADDRESS"]
    processes.snode.arguments = ("-c", str(file), "-n", processes.namesrv.address)
    await processes.snode.start()
    await processes.wait_until_alive()


@every_role
async def test_bad_command_line_and_help(role: str) -> None:
    """An unknown option ends with 255 and the usage; `-h` explains every option and ends with 0 (E-004).

    The help is tested by a start as a program.
    """
    code, _, error = await outcome(role, "--unknown")
    assert (code, "usage: ortoo-" in error) == (255, True)
    assert "-h explains the options" in error
    with spawning.forking(wanted=False):
        code, out, _ = await outcome(role, "-h")
    assert code == 0
    assert [option for option in ("-c FILE", "-n HOST:PORT", "-p ", "-m ", "-h") if option not in out] == []


@every_role
async def test_missing_home_is_refused(tmp_path: Path, role: str) -> None:
    """A missing home folder ends with 254 and a remedy; nothing is created (E-005)."""
    code, _, error = await outcome(role, environ={"ORTOO_HOME": str(tmp_path / "nowhere")})
    assert (code, "nowhere" in error, "make this folder" in error) == (254, True, True)
    assert (await outcome(role, environ={"ORTOO_HOME": ""}))[0] == 254
    assert list(tmp_path.iterdir()) == []


async def test_relative_paths_begin_at_home(tmp_path: Path) -> None:
    """A relative data folder is below ORTOO_HOME; a settings file is relative to the current folder."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "n.toml").write_text('data_dir = "data"\n')
    process = RoleProcess("namesrv", tmp_path / "namesrv", {})
    del process.environ["DATA_DIR"]
    process.arguments = ("-c", os.path.relpath(tmp_path / "n.toml"))
    process.environ_more = {"ORTOO_HOME": str(home)}
    try:
        await process.start()
        assert (home / "data" / "namesrv.db").is_file()
    finally:
        await process.kill()


@pytest.mark.parametrize("role", ["namesrv", "enode"])
async def test_data_folder_that_cannot_be_made_is_refused(tmp_path: Path, role: str) -> None:
    """A data folder below a file ends with 254 and the folder's name (E-005)."""
    (tmp_path / "file").write_text("")
    process = RoleProcess(role, tmp_path / role, {"DATA_DIR": tmp_path / "file" / "data"})
    with pytest.raises(DidNotStart) as caught:
        await process.start()
    assert (caught.value.exit_code, str(tmp_path / "file") in caught.value.log) == (254, True)


@every_role
async def test_malformed_list_of_name_servers_is_refused(role: str) -> None:
    """`-n host` ends with 253 and the expected form; two with `;` are accepted (E-006)."""
    code, _, error = await outcome(role, "-n", "host", "-p")
    assert (code, "'host'; expected host:port" in error) == (253, True)
    assert (await outcome(role, "-n", "a:1;b:2", "-p"))[0] == 0


async def test_second_stop_changes_nothing(processes: ProcessCluster) -> None:
    """A start gives one line with the address. Two SIGTERM give one line with the duration and exit code 0 (E-011).

    All data are there at the next start.
    """
    async with connect(processes.address) as mq:
        await mq.admin.create_topic("t")
        async with mq.producer("t") as producer:
            await producer.send(b"hello")
    for role in reversed(processes.roles):
        os.kill(role.pid, signal.SIGTERM)
        os.kill(role.pid, signal.SIGTERM)
        assert await role.wait() == 0
        assert [line.count(role.address) for line in role.log_text().splitlines() if "process_ready" in line] == [1]
        overs = [line for line in role.log_text().splitlines() if "shutdown_complete" in line]
        assert len(overs) == 1, role.log_text()
        assert re.search(r'"?duration_ms"?[=:] ?\d+', overs[0])
    for role in processes.roles:
        await role.start()
    await processes.wait_until_alive()
    async with connect(processes.address) as mq:
        described = await mq.admin.describe_topic("t")
        assert sum(queue.end_offset for queue in described.queues) == 1


async def test_a_second_interrupt_ends_a_process_that_drains(tmp_path: Path) -> None:
    """As a user does who does not want to wait for the clients of the snode."""
    environ: dict[str, dict[str, object]] = {"snode": {"DRAIN_DELAY_S": 600}}
    async with process_cluster(tmp_path, environ=environ) as cluster, connect(cluster.address) as mq:
        await mq.admin.create_topic("t")
        os.kill(cluster.snode.pid, signal.SIGINT)
        await cluster.snode.wait_for_log("shutdown_started")
        os.kill(cluster.snode.pid, signal.SIGINT)
        assert await cluster.snode.wait() == EXIT_FAILED
        assert "shutdown_complete" not in cluster.snode.log_text()


@every_role
async def test_settings_are_read_again_without_a_restart(processes: ProcessCluster, tmp_path: Path, role: str) -> None:
    """SIGHUP applies settings that may change at once, lists those for the next start, and survives a wrong file."""
    process = {"namesrv": processes.namesrv, "enode": processes.enode, "snode": processes.snode}[role]
    await process.stop()
    file = tmp_path / "live.toml"
    file.write_text('log_level = "info"\nstop_grace_s = 4.0\n')
    process.arguments = ("-c", str(file))
    await process.start()
    file.write_text('log_level = "warning"\nstop_grace_s = 3.0\n')
    os.kill(process.pid, signal.SIGHUP)
    said = await process.wait_for_log("settings_reloaded")
    assert '"changed": ["log_level"]' in said
    assert '"was": {"log_level": "info"}, "now": {"log_level": "warning"}' in said
    assert '"origins": {"log_level": "file"}' in said
    assert '"at_next_start": ["stop_grace_s"]' in said
    file.write_text('log_level = "loud"\n')
    os.kill(process.pid, signal.SIGHUP)
    assert "log_level" in await process.wait_for_log("settings_reload_rejected")
    assert process.alive
