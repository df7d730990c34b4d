"""The roles in one process: name server and enode on free ports, snode and console on their default ports."""

import asyncio
import contextlib
import dataclasses
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from ortoo.cli.demo.role_subprocess import RoleSubprocess, free_addresses
from ortoo.cli.terminal.printing import print_note
from ortoo.client import connect
from ortoo.common.errors import Conflict, Unavailable
from ortoo.common.grpc.tls import make_self_signed_certificate
from ortoo.common.logs.logger import configure, log_standard_error
from ortoo.common.machine.descriptors import Descriptors
from ortoo.common.machine.line_writer import LineWriter
from ortoo.common.machine.standard_files import STANDARD_OUTPUT
from ortoo.common.process.background import Background
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.service import Running, allow_descriptors
from ortoo.console.app import open_console
from ortoo.console.settings import ConsoleSettings
from ortoo.enode.app import open_enode
from ortoo.enode.log.settings import StoreSettings
from ortoo.enode.settings import EnodeSettings
from ortoo.namesrv.app import open_namesrv
from ortoo.namesrv.settings import NamesrvSettings
from ortoo.snode.app import open_snode
from ortoo.snode.settings import SnodeSettings

ANY_PORT = "127.0.0.1:0"
STOP_GRACE_S = 1.0
SEGMENT_BYTES = 64 << 20
ENODE_TIMEOUT_S = 60.0
"""Longest time for an enode to open its store, to be elected and to register; a large store is slow."""
ENODE_POLL_S = 0.02
RESTART_AFTER_S = 5.0
"""Delay before a replica that ended starts again, long enough to see another replica lead."""
_output = LineWriter(STANDARD_OUTPUT)


def run(data_dir: Path, listen_address: str, replicas: int, console_address: str) -> None:
    """Run a cluster until SIGINT or SIGTERM; a second signal ends the process immediately."""
    configure(level="warning")
    log_standard_error()
    allow_descriptors()
    asyncio.run(_run(data_dir, listen_address, replicas, console_address))


async def _run(data_dir: Path, listen_address: str, replicas: int, console_address: str) -> None:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    tls_address = next_tls_address(listen_address)
    async with contextlib.AsyncExitStack() as parts:
        snode = await parts.enter_async_context(open_dev_cluster(data_dir, listen_address, tls_address, replicas))
        other = "" if snode.address.endswith(":8081") else f"export ORTOO_ADDRESS={snode.address} && "
        console = ""
        if console_address:
            console = (await parts.enter_async_context(open_dev_console(console_address, snode.address))).address
        _output.write(
            f"ready on {snode.address}, by TLS on {snode.tls_address}, data in {data_dir}. Try in another terminal: "
            f'{other}ortoo topic create t && ortoo send t "hello" && ortoo tail t   (Ctrl-C stops)'
        )
        if console:
            _output.write(f"web console: http://{console}")
        await stop.wait()


@contextlib.asynccontextmanager
async def open_dev_cluster(
    data_dir: Path, listen_address: str, tls_address: str = "", replicas: int = 1
) -> AsyncIterator[Running]:
    """Run a cluster with its data in `data_dir`; yields the snode once topics can be created and used.

    If the enode has several replicas, each of them is a separate process.

    `tls_address` uses a certificate in `data_dir`/tls, which is created at the first start; empty = no TLS.
    Errors: Conflict when folder or port is in use, or Unavailable when a replica does not start.
    """
    namesrv = NamesrvSettings(listen_address=ANY_PORT, data_dir=data_dir / "namesrv", stop_grace_s=STOP_GRACE_S)
    share = Descriptors.of_process(roles=2 if replicas > 1 else 3)
    async with contextlib.AsyncExitStack() as roles:
        name_server = await roles.enter_async_context(open_namesrv(namesrv, descriptors=share))
        certificate, key = _certificate(data_dir / "tls", listen_address) if tls_address else ("", "")
        snode = SnodeSettings(
            listen_address=listen_address,
            tls_listen_address=tls_address,
            tls_certificate_file=certificate,
            tls_key_file=key,
            namesrv_address=name_server.address,
            stop_grace_s=STOP_GRACE_S,
        )
        snode.check()
        if replicas > 1:
            await roles.enter_async_context(_open_replicas(replicas, data_dir, name_server.address))
        else:
            enode = EnodeSettings(
                listen_address=ANY_PORT,
                namesrv_address=name_server.address,
                data_dir=data_dir / "enode",
                stop_grace_s=STOP_GRACE_S,
                store=dataclasses.replace(StoreSettings(), segment_bytes=SEGMENT_BYTES),
            )
            await roles.enter_async_context(open_enode(enode, descriptors=share))
        running = await roles.enter_async_context(open_snode(snode, descriptors=share))
        await _wait_enode_registered(running.address, SystemClock())
        yield running


@contextlib.asynccontextmanager
async def open_dev_console(listen_address: str, snode_address: str) -> AsyncIterator[Running]:
    """Run the web console of a snode. If the port is taken, the console uses a free one. Errors: Invalid."""
    settings = ConsoleSettings(listen_address=listen_address, snode_address=snode_address)
    settings.check()
    async with contextlib.AsyncExitStack() as parts:
        try:
            console = await parts.enter_async_context(open_console(settings))
        except Conflict:
            free = dataclasses.replace(settings, listen_address=f"{listen_address.rpartition(':')[0]}:0")
            console = await parts.enter_async_context(open_console(free))
        yield console


@contextlib.asynccontextmanager
async def _open_replicas(count: int, data_dir: Path, name_server: str) -> AsyncIterator[None]:
    """Run the replicas of `enode-0` as separate processes, so that a user can kill a replica as an experiment.

    A replica that ends is started again. At the end of the block, all replicas are stopped.
    Errors: Unavailable, with the end of the log, when a replica does not start.
    """
    addresses = free_addresses(count)
    replicas = []
    for number in range(1, count + 1):
        folder = data_dir / f"enode-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "REPLICA": str(number),
            "REPLICAS": str(count),
            "REPLICA_LISTEN_ADDRESS": addresses[number - 1],
            "REPLICA_ADDRESSES": ";".join(addresses),
            "NAMESRV_ADDRESS": name_server,
            "DATA_DIR": str(folder / "data"),
            "STORE_SEGMENT_BYTES": str(SEGMENT_BYTES),
        }
        replicas.append(RoleSubprocess("enode", settings, folder / "log"))
    try:
        for number, member in enumerate(replicas, 1):
            await member.start()
            _output.write(f"replica {number}: process {member.process_id}, data in {data_dir}/enode-{number}")
        async with Background("members") as background:
            for number, member in enumerate(replicas, 1):
                background.spawn(f"member {number}", _keep_running(number, member))
            yield
    finally:
        for member in replicas:
            await member.stop()


async def _keep_running(number: int, replica: RoleSubprocess) -> None:
    """Restart a replica whenever it has ended."""
    while True:
        code = await replica.wait_ended()
        print_note(f"replica {number} has ended ({code}); it starts again in {RESTART_AFTER_S:.0f} s")
        await SystemClock().sleep(RESTART_AFTER_S)
        await replica.start()
        _output.write(f"replica {number}: process {replica.process_id}")


async def _wait_enode_registered(address: str, clock: Clock) -> None:
    """Return when an enode has registered, so that topics can be placed. Errors: Unavailable after a minute."""
    try:
        async with asyncio.timeout(ENODE_TIMEOUT_S), connect(address) as mq:
            while not any(enode.alive for enode in (await mq.admin.describe_cluster()).enodes):
                await clock.sleep(ENODE_POLL_S)
    except TimeoutError:
        text = f"no enode has registered within {ENODE_TIMEOUT_S:.0f} s; check the log above, or for a slow disk"
        raise Unavailable(text) from None


def next_tls_address(listen_address: str) -> str:
    """The address for TLS: the port after the port of `listen_address` if it is free, otherwise any free port.

    Returns an empty text if `listen_address` is invalid.
    """
    host, _, port = listen_address.rpartition(":")
    if not port.isdecimal():
        return ""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), int(port) + 1 if int(port) else 0))
        except (OSError, OverflowError):
            return f"{host}:0"
    return f"{host}:{int(port) + 1 if int(port) else 0}"


def _certificate(folder: Path, listen_address: str) -> tuple[str, str]:
    """The paths of the certificate's file and its key's file; both files are created unless they exist."""
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    if not (certificate_file.exists() and key_file.exists()):
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = make_self_signed_certificate(
            ("localhost", "127.0.0.1", "::1", listen_address.rpartition(":")[0])
        )
        key_file.touch(mode=0o600)
        key_file.write_bytes(key)
        certificate_file.write_bytes(certificate)
    return str(certificate_file), str(key_file)
