"""The enode, opened part by part: store, topic copies, server, registration."""

import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from ortoo.common.address_server import found_name_servers, listed_again
from ortoo.common.background import Background
from ortoo.common.clock import Clock, SystemClock
from ortoo.common.errors import Conflict, Invalid
from ortoo.common.grpc_channels import Channels
from ortoo.common.grpc_server import GrpcServer
from ortoo.common.logs import get_logger
from ortoo.common.metrics import Metrics
from ortoo.common.randomness import Randomness
from ortoo.common.service import Running
from ortoo.common.system_topics import DELAYED_TOPIC_ID, HALF_TOPIC_ID
from ortoo.common.telemetry import Telemetry
from ortoo.common.tracing import open_tracing
from ortoo.enode.deferred.delays import Delays
from ortoo.enode.deferred.intake import Intake
from ortoo.enode.deferred.moves import TimerMoves
from ortoo.enode.deferred.transactions import Transactions
from ortoo.enode.disk import Disk, RealDisk
from ortoo.enode.engine import Engine
from ortoo.enode.identified import IdentifiedIntake
from ortoo.enode.memory_share import memory_bytes, within
from ortoo.enode.node_role import NodeRole, reached_at, replication_address_of
from ortoo.enode.pops.desk import PopDesk
from ortoo.enode.pops.sending_back import SendingBack
from ortoo.enode.registration import registration
from ortoo.enode.replication.followers import Followers
from ortoo.enode.rpc import replication, service
from ortoo.enode.rpc.streams import Streams
from ortoo.enode.settings import Settings
from ortoo.enode.store import Store
from ortoo.enode.telemetry import register, register_pops
from ortoo.enode.topic_copies import TopicCopies, watch_topics
from ortoo.enode.traces import traced_intake
from ortoo.v1 import topic_pb2

SWITCH_INTERVAL_S = 0.0001
IDLE_INTERVAL_S = 60.0
"""How often groups that pop nothing are put out of memory."""
_log = get_logger("enode")


@dataclass(frozen=True, slots=True)
class RunningEnode(Running):
    """An enode that is up. A process that also holds a snode may call the store without the wire."""

    store: Store
    topics: TopicCopies
    intake: Intake
    pops: PopDesk
    sending: SendingBack
    identified: IdentifiedIntake


@contextlib.asynccontextmanager
async def open_enode(
    settings: Settings,
    *,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    disk: Disk | None = None,
) -> AsyncIterator[RunningEnode]:
    """Run an enode. It serves from its copies whether or not a name server answers; leaving the block drains it.

    Errors: Invalid, Conflict, Unsupported, DataLoss, as `Store.open` and the server say them.
    """
    clock, randomness, disk = clock or SystemClock(), randomness or Randomness(), disk or RealDisk()
    # The flush thread needs the interpreter for a moment after each fdatasync. Beside a busy event loop it waits a
    # whole switch interval for that: with CPython's 5 ms a flush of 0.12 ms takes 11.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    telemetry = Telemetry("enode", settings, clock)
    async with contextlib.AsyncExitStack() as parts:
        _make_folder(disk, settings.data_dir)
        chosen = within(settings.store_settings, settings.memory_share_percent, memory_bytes())
        store = await Store.open(settings.data_dir, settings=chosen, disk=disk, clock=clock, randomness=randomness)
        parts.push_async_callback(store.close)
        topics = TopicCopies(store, settings.name)
        channels = await parts.enter_async_context(Channels())
        background = await parts.enter_async_context(Background("enode"))
        name_servers = await found_name_servers(settings.namesrv_address, background=background, clock=clock)
        delays = Delays(store, background, clock=clock)
        store.before_retention(DELAYED_TOPIC_ID, TimerMoves(store, clock=clock).rescue)
        pops = PopDesk(store, clock, background)
        parts.push_async_callback(pops.close)
        transactions = Transactions(store, background, settings.check_schedule, clock=clock)
        store.before_retention(HALF_TOPIC_ID, transactions.rescue)
        intake = Intake(store, delays, transactions)
        sending = SendingBack(store, intake, clock, background)
        tracing = await parts.enter_async_context(
            open_tracing("enode", settings.name, settings.trace_endpoint, clock=clock, randomness=randomness)
        )
        taking = intake if tracing is None else traced_intake(intake, tracing, settings.name)
        identified = IdentifiedIntake(store, taking, background, clock, window_ms=settings.dedup_window_ms)
        handlers = service.EnodeService(store, topics, taking, identified, pops, sending)
        server = GrpcServer(
            settings.listen_address,
            [(service.NAME, lambda grpc_server: service.add_to_server(handlers, grpc_server))],
            outermost=[telemetry.calls],
            grace_s=settings.stop_grace_s,
            drain_delay_s=settings.drain_delay_s,
        )
        handlers.streams = Streams(background, server.draining)
        register(telemetry.metrics, store, clock)
        register_pops(telemetry.metrics, store, pops)
        followers, replication_address = await parts.enter_async_context(
            open_replication(settings, store.engine, background, telemetry.metrics)
        )
        await parts.enter_async_context(telemetry.open(ready=lambda: server.serving))
        await parts.enter_async_context(server)
        announced = topic_pb2.Enode(
            name=settings.name,
            address=settings.advertised_address or server.address,
            store_id=store.describe().store_id,
            role=settings.role,
            replica_id=settings.replica_id,
            replication_address=reached_at(replication_address, settings.advertised_address),
        )
        leases = registration(
            announced,
            followers.all,
            name_servers,
            channels,
            interval_s=settings.heartbeat_interval_s,
            clock=clock,
            randomness=randomness,
        )
        followers.on_change = leases.hurry
        parts.push_async_callback(leases.leave)
        announcing = background.spawn("registration", leases.run())
        parts.callback(announcing.cancel)  # else it would take back a lease that was just left
        following = watch_topics(
            topics, name_servers, channels, connected=leases.hurry, clock=clock, randomness=randomness
        )
        background.spawn("topics", following)
        delivering = background.spawn("delays", delays.run())
        parts.callback(delivering.cancel)
        background.every("idle groups", IDLE_INTERVAL_S, pops.forget_idle, clock=clock)
        background.every("old ids", IDLE_INTERVAL_S, identified.forget_old, clock=clock)
        checking = background.spawn("transactions", transactions.run())
        parts.callback(checking.cancel)
        background.spawn("locks", handlers.attached.follow_locks(clock))
        health = Health(store, server)
        background.every("health", settings.health_interval_s, health.look, clock=clock)
        yield RunningEnode(
            settings.name,
            server.address,
            store,
            topics,
            intake,
            pops,
            sending,
            identified,
            reload=lambda new: listed_again(name_servers, new.namesrv_address),
        )


@contextlib.asynccontextmanager
async def open_replication(
    settings: Settings, engine: Engine, background: Background, metrics: Metrics
) -> AsyncIterator[tuple[Followers, str]]:
    """Let replicas follow the log; yields them, and the address where they can, empty if nowhere.

    Errors: Conflict when an address that was set is taken; when the default one is, nobody can follow.
    """
    followers = Followers(engine.appender, is_waited_for=settings.role is NodeRole.SYNC_MASTER)
    metrics.gauge(
        "ortoo_replica_lag_bytes",
        "Bytes of the log that a replica has not written yet.",
        followers.lags_bytes,
        labels=("replica_id",),
    )
    address = replication_address_of(settings.replication_address, settings.listen_address)
    async with contextlib.AsyncExitStack() as parts:
        parts.callback(followers.end)
        if address:
            handlers = replication.ReplicationService(engine, followers, background)
            server = GrpcServer(
                address, [(replication.NAME, replication.add_to_server(handlers))], grace_s=settings.stop_grace_s
            )
            try:
                await parts.enter_async_context(server)
                address = server.address
                ending = background.spawn("replicas", replication.end_at(server.draining, followers))
                parts.callback(ending.cancel)
            except Conflict as error:
                if settings.replication_address or settings.role is NodeRole.SYNC_MASTER:
                    raise Conflict(error.message, field="replication_address") from error
                _log.warning("no replica can follow", reason=str(error))
                address = ""
        yield followers, address


def _make_folder(disk: Disk, folder: Path) -> None:
    try:
        disk.make_folder(folder)
    except OSError as error:
        raise Invalid(
            f"the folder {folder} cannot be made: {error.strerror}; give one that this user may write", field="data_dir"
        ) from error


class Health:
    """Says by grpc.health.v1 whether this enode takes messages."""

    def __init__(self, store: Store, server: GrpcServer) -> None:
        self._store = store
        self._server = server
        self._serving = True

    async def look(self) -> None:
        """Compare with the store, and tell a change."""
        description = self._store.describe()
        if description.writable == self._serving or self._server.draining.is_set():
            return
        self._serving = description.writable
        await self._server.set_serving(self._serving)
        if self._serving:
            _log.info("taking messages again")
        else:
            _log.error("takes no messages", reason=description.reason)
