"""The snode, opened part by part: directory, links, groups, server, registration."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from apache.rocketmq.v2.service_pb2_grpc import add_MessagingServiceServicer_to_server
from ortoo.common.address_server import found_name_servers, listed_again
from ortoo.common.announcing import Announcing
from ortoo.common.background import Background
from ortoo.common.clock import Clock, SystemClock
from ortoo.common.grpc_channels import Channels
from ortoo.common.grpc_server import GrpcServer
from ortoo.common.randomness import Randomness
from ortoo.common.service import Running
from ortoo.common.telemetry import Telemetry
from ortoo.common.tls_listener import TlsListener
from ortoo.common.tracing import open_tracing
from ortoo.keda.externalscaler_pb2_grpc import add_ExternalScalerServicer_to_server
from ortoo.snode.attachments import Attachments
from ortoo.snode.client_directory import ClientDirectory
from ortoo.snode.client_locks import ClientLocks
from ortoo.snode.client_sessions import ClientSessions
from ortoo.snode.close_reason import CloseReason
from ortoo.snode.consumer_groups import ConsumerGroups
from ortoo.snode.dead_letters import DeadLetters
from ortoo.snode.delayed import Delayed
from ortoo.snode.directory import Directory
from ortoo.snode.directory_watch import DirectoryWatch
from ortoo.snode.enode_link import LinkFactory
from ortoo.snode.enode_links import EnodeLinks
from ortoo.snode.flow_control import FlowControl
from ortoo.snode.flow_control_file import FlowControlFile
from ortoo.snode.group_settings import GroupSettings
from ortoo.snode.group_topics import GroupTopics
from ortoo.snode.grpc_enode_link import GrpcLinks
from ortoo.snode.interception import Chain, load_interceptors
from ortoo.snode.lag import Lag
from ortoo.snode.members import Member
from ortoo.snode.membership import LocalMembership
from ortoo.snode.membership_store import MembershipStore
from ortoo.snode.message_search import MessageSearch
from ortoo.snode.name_server import NameServer
from ortoo.snode.offset_moves import OffsetMoves
from ortoo.snode.offsets import Offsets
from ortoo.snode.popping import Popping
from ortoo.snode.publish_lane import LaneLimits
from ortoo.snode.publisher import Publisher
from ortoo.snode.pulling import Pulling
from ortoo.snode.push_session import PushParts
from ortoo.snode.queue_locks import ASK_AGAIN_S, QueueLocks
from ortoo.snode.reading import Reading
from ortoo.snode.rocketmq.gateway import make_gateway
from ortoo.snode.rocketmq.route import endpoints_of
from ortoo.snode.rpc import admin, consumer, dead_letter, producer, rocketmq, session
from ortoo.snode.rpc.admin_groups import GroupParts
from ortoo.snode.rpc.interception import Interception
from ortoo.snode.rpc.long_calls import LongCalls
from ortoo.snode.rpc.scaler import NAME as SCALER
from ortoo.snode.rpc.scaler import ExternalScaler
from ortoo.snode.scaling import Scaling
from ortoo.snode.sending_back import SendingBack
from ortoo.snode.sessions import Sessions
from ortoo.snode.settings import Settings
from ortoo.snode.shared_membership import SharedMembership
from ortoo.snode.telemetry import register, register_clients
from ortoo.snode.topic_arrival import TopicArrival
from ortoo.snode.traces import PushTraces, TracedLinks
from ortoo.snode.transactions import Transactions
from ortoo.v1.admin_pb2_grpc import add_AdminServiceServicer_to_server
from ortoo.v1.dead_letter_pb2_grpc import add_DeadLetterServiceServicer_to_server
from ortoo.v1.session_pb2_grpc import add_SessionServiceServicer_to_server

PRESENCE_SWEEP_S = 10.0
LEASES_INTERVAL_S = 5.0
ATTACH_INTERVAL_S = 0.5
FLOW_INTERVAL_S = 1.0
"""How often the file of limits is looked at."""
CHECKS_INTERVAL_S = 0.5


@contextlib.asynccontextmanager
async def open_snode(
    settings: Settings,
    *,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    links: LinkFactory = GrpcLinks,
) -> AsyncIterator[Running]:
    """Run a snode; it is ready when it has seen the cluster's directory. Leaving the block drains it.

    `links` reaches the enodes; the default speaks gRPC. Errors: Conflict when the port is taken, or when another snode
    runs that does not share group membership.
    """
    clock, randomness = clock or SystemClock(), randomness or Randomness()
    telemetry = Telemetry("snode", settings.name, clock, address=settings.metrics_address)
    async with contextlib.AsyncExitStack() as parts:
        channels = await parts.enter_async_context(Channels())
        background = await parts.enter_async_context(Background("snode"))
        directory = Directory()
        name_servers = await found_name_servers(settings.namesrv_address, background=background, clock=clock)
        name_server = NameServer(name_servers, channels)
        watch = DirectoryWatch(directory, name_server, clock=clock, randomness=randomness)
        timeout_s = settings.enode_timeout_ms / 1000
        tracing = await parts.enter_async_context(open_tracing("snode", settings.name, settings.trace_endpoint))
        opened = await parts.enter_async_context(
            links(
                background=background,
                clock=clock,
                timeout_s=timeout_s,
                in_flight_bytes_max=settings.enode_in_flight_bytes,
            )
        )
        enodes = EnodeLinks(directory, opened if tracing is None else TracedLinks(opened, tracing))
        incarnation = randomness.id_text()
        membership: LocalMembership | SharedMembership = LocalMembership(clock)
        store: MembershipStore | None = None
        if settings.redis_url:
            membership = SharedMembership(incarnation, clock)
            store = MembershipStore(
                settings.redis_url,
                membership,
                incarnation=incarnation,
                prefix=settings.redis_prefix,
                timeout_s=settings.membership_timeout_s,
                clock=clock,
                randomness=randomness,
            )
            await parts.enter_async_context(store.open(background))
        groups = ConsumerGroups(directory, membership, clock)
        watch.on_topics(groups.topics_changed)
        reading = Reading(watch, enodes)
        offsets = Offsets(enodes)
        locks = QueueLocks(enodes, background, incarnation, clock=clock, randomness=randomness)
        attachments = Attachments(
            directory,
            enodes,
            locks,
            background,
            snode=settings.name,
            incarnation=incarnation,
            clock=clock,
            randomness=randomness,
        )
        group_settings = GroupSettings(directory, name_server, auto_create=settings.auto_create_groups)
        push_parts = PushParts(directory, enodes, offsets, groups, locks, background, clock, randomness)
        if tracing is not None:
            push_parts.traffic.traces = PushTraces(tracing)
        sessions = Sessions(push_parts, watch, group_settings, clock=clock, expiry_s=settings.session_expiry_s)
        clients = ClientSessions(
            groups,
            group_settings,
            sessions,
            locks,
            snode=settings.name,
            incarnation=incarnation,
            clock=clock,
            randomness=randomness,
        )
        pulling = Pulling(watch, enodes, offsets, group_settings, groups.membership, clock)
        publisher = Publisher(
            directory, watch, enodes, background, LaneLimits(timeout_s), clock=clock, randomness=randomness
        )
        delayed = Delayed(watch, enodes)
        transactions = Transactions(directory, watch, enodes, background, clock=clock, randomness=randomness)
        long_calls = LongCalls()
        arrival = TopicArrival(watch, enodes, clock=clock)
        group_topics = GroupTopics(directory, name_server, arrival)
        popping = Popping(directory, watch, enodes, group_settings, group_topics, background, clock)
        producing = producer.ProducerService(
            directory, watch, enodes, publisher, delayed, transactions, long_calls, background
        )
        consuming = consumer.ConsumerService(
            watch,
            sessions,
            clients,
            reading,
            pulling,
            ClientLocks(watch, enodes),
            background,
            long_calls,
            popping,
            SendingBack(watch, enodes, group_settings, group_topics),
            here=Member("", "", settings.name, incarnation),
        )
        connecting = session.SessionService(clients, background)
        lag = Lag(watch, enodes, reading)
        search = MessageSearch(watch, enodes)
        flow = FlowControl(clock)
        flow_file = FlowControlFile(settings.flow_control_file, flow)
        chain = Chain([flow, *load_interceptors(settings.interceptors)])
        found = ClientDirectory(settings.name, directory, groups.membership, clients, sessions, randomness)
        moves = OffsetMoves(watch, enodes, reading)
        group_parts = GroupParts(name_server, arrival, found, moves, lag, flow, flow_file, channels)
        operating = admin.AdminService(
            directory,
            name_server,
            arrival,
            reading,
            search,
            lag,
            delayed,
            transactions,
            long_calls,
            group_parts,
            clock,
        )
        gateway = make_gateway(
            directory,
            watch,
            name_server,
            enodes,
            offsets,
            publisher,
            popping,
            reading,
            delayed,
            transactions,
            background,
            advertised_address=settings.rocketmq_advertised_address,
            authenticates=settings.rocketmq_signatures_required,
            clock=clock,
            randomness=randomness,
        )
        messaging = rocketmq.MessagingService(gateway)
        looking_after = dead_letter.DeadLetterService(
            DeadLetters(watch, enodes, group_topics, reading, clock), long_calls
        )
        scaler = ExternalScaler(Scaling(lag, watch, enodes, clock), long_calls, clock)
        server = GrpcServer(
            settings.listen_address,
            [
                (producer.NAME, lambda grpc_server: producer.add_to_server(producing, grpc_server)),
                (consumer.NAME, lambda grpc_server: consumer.add_to_server(consuming, grpc_server)),
                (session.NAME, lambda grpc_server: add_SessionServiceServicer_to_server(connecting, grpc_server)),
                (
                    dead_letter.NAME,
                    lambda grpc_server: add_DeadLetterServiceServicer_to_server(looking_after, grpc_server),
                ),
                (admin.NAME, lambda grpc_server: add_AdminServiceServicer_to_server(operating, grpc_server)),
                (SCALER, lambda grpc_server: add_ExternalScalerServicer_to_server(scaler, grpc_server)),
                (rocketmq.NAME, lambda grpc_server: add_MessagingServiceServicer_to_server(messaging, grpc_server)),
            ],
            outermost=[telemetry.calls],
            interceptors=[Interception(chain)],
            grace_s=settings.stop_grace_s,
            drain_delay_s=settings.drain_delay_s,
            tls=_tls_listener(settings),
        )

        async def drain() -> None:
            await server.draining.wait()
            producing.drain()
            gateway.drain()
            long_calls.end()
            clients.close_all(CloseReason.SHUTDOWN, "this snode stops; connect to another one")
            await sessions.close_all(CloseReason.SHUTDOWN, "this snode stops; open the session at another one")

        background.spawn("drain", drain())
        background.spawn("directory", watch.run())
        background.spawn("groups", groups.run())
        await flow_file.look()
        await watch.ready.wait()
        await attachments.look()
        background.every("checks", CHECKS_INTERVAL_S, transactions.look, clock=clock)
        background.every("attachments", ATTACH_INTERVAL_S, attachments.look, clock=clock)
        register(telemetry.metrics, directory, sessions, push_parts.traffic)
        register_clients(telemetry.metrics, clients, flow, store.connected.is_set if store is not None else None)
        await parts.enter_async_context(telemetry.open(ready=lambda: server.serving))
        await parts.enter_async_context(server)
        gateway.routing.own = endpoints_of(settings.advertised_address or server.address)

        async def announce(address: str) -> float:
            listed = settings.advertised_address or server.address
            return await name_server.register(
                address, settings.name, listed, incarnation, shares_membership=bool(settings.redis_url)
            )

        registration = Announcing(
            name_servers,
            announce,
            lambda address: name_server.unregister(address, settings.name),
            interval_s=settings.heartbeat_interval_s,
            clock=clock,
            randomness=randomness,
        )
        await registration.begin()
        parts.push_async_callback(registration.leave)
        announcing: asyncio.Task[None] = background.spawn("registration", registration.run())
        parts.callback(announcing.cancel)  # else it would take back a lease that was just left
        background.every("sweep sessions", settings.sweep_interval_s, clients.sweep, clock=clock)
        background.every("limits", FLOW_INTERVAL_S, flow_file.look, clock=clock)
        background.every("locks", ASK_AGAIN_S, locks.ask_again, clock=clock)
        background.every("sweep", settings.sweep_interval_s, sessions.sweep, clock=clock)
        background.every("sweep clients", PRESENCE_SWEEP_S, gateway.presence.sweep, clock=clock)
        background.every("renew leases", LEASES_INTERVAL_S, gateway.leases.renew, clock=clock)
        yield Running(
            settings.name,
            server.address,
            reload=lambda new: listed_again(name_servers, new.namesrv_address),
            tls_address=server.tls_address,
        )


def _tls_listener(settings: Settings) -> TlsListener | None:
    if not settings.tls_listen_address:
        return None
    return TlsListener(settings.tls_listen_address, Path(settings.tls_certificate_file), Path(settings.tls_key_file))
