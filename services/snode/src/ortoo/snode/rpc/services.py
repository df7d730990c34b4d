"""The services of a snode, each with its name and registration function, and their graceful end."""

from collections.abc import Callable
from functools import partial
from typing import Any

from apache.rocketmq.v2.admin_pb2_grpc import add_AdminServicer_to_server
from apache.rocketmq.v2.service_pb2_grpc import add_MessagingServiceServicer_to_server
from ortoo.common.cluster.dynamic_settings import DynamicSettings
from ortoo.common.grpc.server import AddServicer
from ortoo.common.telemetry.findings_service import LocalFindings
from ortoo.keda.externalscaler_pb2_grpc import add_ExternalScalerServicer_to_server
from ortoo.snode.clients import ClientComponents
from ortoo.snode.cluster import ClusterView
from ortoo.snode.cluster.runtime import Runtime
from ortoo.snode.enodes.link import EnodeLinks
from ortoo.snode.membership.group_members import CloseReason
from ortoo.snode.observe.send_latency import SendLatency
from ortoo.snode.policy import Policy
from ortoo.snode.pop import PopComponents
from ortoo.snode.pull import PullComponents
from ortoo.snode.push.sessions import PushSessions
from ortoo.snode.rocketmq.rpc import service as rocketmq
from ortoo.snode.rocketmq.rpc.activities import MessagingActivities
from ortoo.snode.rpc import consumer, producer, reply, session
from ortoo.snode.rpc.operators import admin, dead_letter, findings, scaler, settings
from ortoo.snode.rpc.operators.explanation import deliveries
from ortoo.snode.rpc.operators.explanation.message_trace import MessageTracer
from ortoo.snode.rpc.streams import LongCalls
from ortoo.snode.send import SendComponents
from ortoo.snode.topics import TopicComponents
from ortoo.v1.admin_pb2_grpc import add_AdminServiceServicer_to_server
from ortoo.v1.dead_letter_pb2_grpc import add_DeadLetterServiceServicer_to_server
from ortoo.v1.delivery_pb2_grpc import add_DeliveryServiceServicer_to_server
from ortoo.v1.findings_pb2_grpc import add_FindingsServiceServicer_to_server
from ortoo.v1.reply_pb2_grpc import add_ReplyServiceServicer_to_server
from ortoo.v1.session_pb2_grpc import add_SessionServiceServicer_to_server
from ortoo.v1.settings_pb2_grpc import add_SettingsServiceServicer_to_server


class Services:
    """The gRPC services of a snode's server."""

    def __init__(
        self,
        runtime: Runtime,
        cluster: ClusterView,
        enodes: EnodeLinks,
        topics: TopicComponents,
        sending: SendComponents,
        pull: PullComponents,
        push_sessions: PushSessions,
        pop: PopComponents,
        clients: ClientComponents,
        policy: Policy,
        activities: MessagingActivities,
        own_findings: LocalFindings,
        live: DynamicSettings[Any],
        send_latency: SendLatency,
    ) -> None:
        """Make a service for each package of the snode."""
        self._activities, self._clients, self._push_sessions = activities, clients, push_sessions
        self._long_calls = long_calls = LongCalls(runtime.memory)
        self._producer_service = producing = producer.ProducerService(
            runtime, cluster, enodes, topics, sending, long_calls, send_latency
        )
        runtime.metrics.gauge(
            "rocketmq_producer_connections",
            "Open streams of producers, and RocketMQ clients that send.",
            lambda: producing.connections + activities.clients.producer_count,
        )
        consuming = consumer.ConsumerService(
            runtime=runtime,
            cluster=cluster,
            pull=pull,
            push_sessions=push_sessions,
            pop=pop,
            clients=clients,
            long_calls=long_calls,
        )
        operating = admin.AdminService(
            runtime=runtime,
            cluster=cluster,
            topics=topics,
            sending=sending,
            pull=pull,
            clients=clients.directory,
            policy=policy,
            rocketmq=activities.commands,
            parking=pop.operator_parking,
            long_calls=long_calls,
        )
        looking_after = dead_letter.DeadLetterService(pop.dead_letters, long_calls, operating.check_group_exists)
        self.findings = finding = findings.ClusterFindings(
            own_findings, runtime, cluster, policy, clients.directory.membership
        )
        """Checks this process regularly."""
        setting = settings.ClusterSettings(live, cluster, runtime.channels, policy)
        delivering = deliveries.DeliveryService(
            cluster,
            runtime.channels,
            clients.directory,
            pull.search,
            pop.dead_letters,
            pull.backlogs,
            MessageTracer(cluster.watch, enodes, pull.search, topics.delivery_modes),
            operating.describe_client,
            push_sessions.evictions,
            runtime.clock,
        )
        scaling = scaler.ExternalScaler(pull.lag, long_calls, runtime.clock)
        served: list[tuple[str, Callable[[Any, Any], None], Any]] = [
            (producer.NAME, producer.add_to_server, producing),
            (consumer.NAME, consumer.add_to_server, consuming),
            (session.NAME, add_SessionServiceServicer_to_server, session.SessionService(clients.sessions, runtime)),
            (reply.NAME, add_ReplyServiceServicer_to_server, reply.ReplyService(runtime, clients.replies, policy)),
            (dead_letter.NAME, add_DeadLetterServiceServicer_to_server, looking_after),
            (admin.NAME, add_AdminServiceServicer_to_server, operating),
            (deliveries.NAME, add_DeliveryServiceServicer_to_server, delivering),
            (findings.NAME, add_FindingsServiceServicer_to_server, finding),
            (settings.NAME, add_SettingsServiceServicer_to_server, setting),
            (scaler.NAME, add_ExternalScalerServicer_to_server, scaling),
            (rocketmq.ADMIN_NAME, add_AdminServicer_to_server, rocketmq.RocketmqAdmin()),
            (rocketmq.NAME, add_MessagingServiceServicer_to_server, rocketmq.MessagingService(activities)),
        ]
        self.added: list[tuple[str, AddServicer]] = [(name, partial(add, servicer)) for name, add, servicer in served]
        """Full names and registration functions."""

    async def drain(self) -> None:
        """End open calls, and notify their clients that they must use another snode."""
        self._producer_service.drain()
        self._activities.clients.end_streams()
        self._long_calls.end_all()
        self._clients.sessions.close_all(CloseReason.SHUTDOWN, "this snode is stopping; connect to another one")
        message = "this snode is stopping; open the session at another snode"
        await self._push_sessions.close_all(CloseReason.SHUTDOWN, message)
        self._push_sessions.context.groups.leave_now()
