"""The repeated calls of RocketMQ's clients are answered as if each were served, whatever changes between them."""

import contextvars
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from apache.rocketmq.v2 import definition_pb2 as d
from apache.rocketmq.v2 import service_pb2 as pb
from ortoo.common.directory.topic import Permission, Placement
from ortoo.common.errors import NotFound
from ortoo.common.grpc.layers.coding import Decoding, Encoding
from ortoo.common.grpc.layers.direct import DirectHandler
from ortoo.common.grpc.layers.layer import Method
from ortoo.common.process.memory_budget import MemoryBudget
from ortoo.common.process.randomness import Randomness
from ortoo.common.telemetry.call_metrics import CallMetrics
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.routes import DirectoryUpdate, Topic
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.membership.group_members import GroupMember
from ortoo.snode.membership.group_membership import Membership
from ortoo.snode.policy.flow_control import FlowControl, FlowRule, FlowUnit
from ortoo.snode.rocketmq.clients.registration import ClientRegistration
from ortoo.snode.rocketmq.clients.routes import RouteActivity, endpoints_of
from ortoo.snode.rocketmq.clients.table import ClientTable, CommandStream
from ortoo.snode.rocketmq.lite.subscriptions import LiteSubscriptions
from ortoo.snode.rocketmq.presence.heartbeats import ClientActivity
from ortoo.snode.rocketmq.protocol.caller import caller_of
from ortoo.snode.rocketmq.receive.open_polls import OpenPolls
from ortoo.snode.rocketmq.rpc.service import MessagingService
from ortoo.snode.rpc.layers.access import RocketmqErrorLayer
from ortoo.snode.rpc.layers.interceptors import FlowControlLayer
from ortoo.snode.rpc.layers.namespaces import NamespaceLayer
from ortoo.verification.time.virtual_clock import VirtualClock

CLIENTS = ["c1", "c1", "c2", ""]
PEERS = ["ipv4:10.0.0.1:1", "ipv4:10.0.0.2:1"]
ENDPOINTS = [d.Endpoints(), endpoints_of("10.0.0.9:80")]
TYPES = [d.PUSH_CONSUMER, d.SIMPLE_CONSUMER, d.PRODUCER]
names = st.sampled_from(["t1", "t1", "t1", "t2", "ns%t1", "TBW102"])


class NoNameServer:
    """Knows no topic beside those in the directory."""

    async def get_topic(self, name: str) -> Topic:
        raise NotFound(f"there is no topic {name}", field="topic")


class CallerContext:
    """The part of a call's context that layers and handlers use."""

    def __init__(self, headers: dict[str, str], peer: str) -> None:
        self._headers, self._peer = headers, peer

    def invocation_metadata(self) -> Any:
        return tuple(self._headers.items())

    @property
    def headers(self) -> dict[str, str]:
        return self._headers

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def time_remaining(self) -> float:
        return 3.0

    def code(self) -> None:
        return None


class Snode:
    """The part of a snode that serves repeated calls; with `repeats` it sends kept answers."""

    def __init__(self, *, repeats: bool) -> None:
        self.clock = clock = VirtualClock()
        self.directory = DirectoryCache()
        watch = DirectoryWatch(self.directory, NoNameServer(), clock=clock, randomness=Randomness(1))  # type: ignore[arg-type]
        self.clients = ClientTable(MemoryBudget(1 << 30).share("clients"))
        self.membership = Membership(clock)
        runtime: Any = SimpleNamespace(
            settings=SimpleNamespace(name="s"), incarnation="i", clock=clock, randomness=Randomness(2)
        )
        topics: Any = SimpleNamespace(find_or_create=watch.topic)
        self.route = RouteActivity(watch, topics, "")
        self.client_activity = ClientActivity(
            self.clients,
            SimpleNamespace(),  # type: ignore[arg-type]
            SimpleNamespace(),  # type: ignore[arg-type]
            ClientRegistration(self.membership, runtime),
            LiteSubscriptions(),
            OpenPolls(),
            clock,
        )
        self.flow = FlowControl(clock)
        self.metrics = CallMetrics(clock)
        layers = [
            self.metrics, Encoding(), RocketmqErrorLayer(), Decoding(), NamespaceLayer(), FlowControlLayer(self.flow)
        ]  # fmt: skip
        service = MessagingService(self)  # type: ignore[arg-type]
        self.handlers = {}
        for name in ("Heartbeat", "QueryAssignment", "QueryRoute"):
            read, write = getattr(pb, f"{name}Request").FromString, getattr(pb, f"{name}Response").SerializeToString
            handle = getattr(service, name)
            method = Method(f"/apache.rocketmq.v2.MessagingService/{name}", name, False, False, read, write)
            start = handle.__func__.start.__get__(service)
            self.handlers[name] = one = DirectHandler(handle, start, method, layers)
            assert one.repeats is not None
            if not repeats:
                one.repeats = None

    def authenticate(self, context: Any) -> Any:
        """As the activities of a snode do."""
        caller = caller_of(context, dict(context.invocation_metadata()))
        self.clients.check_owner(caller)
        return caller

    def call(self, name: str, request: Any, headers: dict[str, str], peer: str) -> bytes:
        """The answer to a call."""
        found: list[bytes] = []
        context: Any = CallerContext(headers, peer)
        variables = contextvars.copy_context()  # as for each call of a server

        def go_on(rest: Any) -> None:
            with pytest.raises(StopIteration) as ended:  # nothing here has to wait
                rest.send(None)
            found.append(ended.value.value)

        variables.run(self.handlers[name].serve, request.SerializeToString(), context, found.append, go_on)
        [answer] = found
        return answer

    def state(self) -> Any:
        """Everything that calls change."""
        clients = [
            (one.client_id, one.client_type, one.group, one.peer, one.language, one.client_version, one.last_active_s,
             one.session_id, one.member_of)
            for one in self.clients.all()
        ]  # fmt: skip
        members = {group: dict(self.membership.members(group)) for group in sorted(self.membership.groups())}
        counts = {key: histogram.count for key, histogram in self.metrics.calls.items()}
        return clients, members, counts


class RepeatedCalls(RuleBasedStateMachine):
    """The same calls and changes at a snode that keeps answers, and at one that serves each call."""

    def __init__(self) -> None:
        super().__init__()
        self.snodes = [Snode(repeats=True), Snode(repeats=False)]
        self.version = 0
        self.made: list[tuple[str, Any, dict[str, str], str]] = []
        self.set_topic("t1", Permission.READ_WRITE, 1)

    @rule(
        name=st.sampled_from(["Heartbeat", "QueryAssignment", "QueryRoute"]),
        topic=names,
        group=st.sampled_from(["g1", "g1", "g2", "CID_RMQ_SYS_g"]),
        client=st.sampled_from(CLIENTS),
        client_type=st.sampled_from(TYPES),
        endpoints=st.sampled_from(ENDPOINTS),
        namespace=st.sampled_from(["", "", "ns"]),
        version=st.sampled_from(["5.0.7", "5.2.0"]),
        peer=st.sampled_from(PEERS),
    )
    def call(
        self,
        name: str,
        topic: str,
        group: str,
        client: str,
        client_type: Any,
        endpoints: d.Endpoints,
        namespace: str,
        version: str,
        peer: str,
    ) -> None:
        """Make a call, which is repeated after each change."""
        resource, by_group = d.Resource(name=topic), d.Resource(name=group)
        request: Any = {
            "Heartbeat": pb.HeartbeatRequest(group=by_group, client_type=client_type),
            "QueryAssignment": pb.QueryAssignmentRequest(topic=resource, group=by_group, endpoints=endpoints),
            "QueryRoute": pb.QueryRouteRequest(topic=resource, endpoints=endpoints),
        }[name]
        headers = {"x-mq-language": "JAVA", "x-mq-client-version": version, "x-mq-client-id": client}
        headers |= {"x-mq-namespace": namespace} if namespace else {}
        self.made.append((name, request, headers, peer))

    @invariant()
    def repeated_calls_are_answered_as_calls_that_are_served(self) -> None:
        """After each change the last calls are repeated. Kept answers have the effects of served calls."""
        for made in self.made[-3:] * 2:
            answers = [snode.call(*made) for snode in self.snodes]
            assert answers[0] == answers[1]
            first, second = (snode.state() for snode in self.snodes)
            assert first == second
            for snode in self.snodes:
                snode.clock.advance(1)

    @rule(name=names, permission=st.sampled_from(list(Permission)), queues=st.integers(0, 2))
    def set_topic(self, name: str, permission: Permission, queues: int) -> None:
        """Create or change a topic."""
        self.version += 1
        topic = Topic(name, 1, self.version, permission, (Placement("a", queues, queues),))
        for snode in self.snodes:
            snode.directory.apply(DirectoryUpdate(self.version, topics=(topic,)))

    @rule(name=names)
    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self.version += 1
        for snode in self.snodes:
            if snode.directory.find_topic(name) is not None:
                snode.directory.apply(DirectoryUpdate(self.version, deleted_topics=(name,)))

    @rule(address=st.sampled_from(["10.1.1.1:1", "10.1.1.2:2"]))
    def move(self, address: str) -> None:
        """Give the snode an address."""
        for snode in self.snodes:
            snode.route.own_endpoints = endpoints_of(address)

    @rule(client=st.sampled_from(CLIENTS), group=st.sampled_from(["g1", "ns%g1"]), joins=st.booleans())
    def change_membership(self, client: str, group: str, *, joins: bool) -> None:
        """Another snode's client with this id joins or leaves."""
        for snode in self.snodes:
            if joins:
                snode.membership.join(group, GroupMember(client, "elsewhere", "s2", "j", (), pushed=True, active=False))
            else:
                snode.membership.leave(group, client, "elsewhere")

    @rule(client=st.sampled_from(CLIENTS), change=st.sampled_from(["settings", "stream", "publishes", "group"]))
    def change_client(self, client: str, change: str) -> None:
        """A client sends settings, begins or ends its stream, sends to a topic, or receives for a group."""
        for snode in self.snodes:
            if (found := snode.clients.get(client)) is None:
                continue
            if change == "settings":
                settings = d.Settings(client_type=d.PUSH_CONSUMER)
                settings.subscription.subscriptions.add(topic=d.Resource(name=f"t{self.version % 2}"))
                snode.clients.set_settings(found, settings)
            elif change == "stream":
                found.stream = CommandStream() if found.stream is None else None
            elif change == "publishes":
                snode.clients.add_published_topics(found, {"t1"})
            else:
                found.group = "g1"

    @rule(client=st.sampled_from(CLIENTS))
    def leave(self, client: str) -> None:
        """A client leaves, or is removed."""
        for snode in self.snodes:
            if (found := snode.clients.remove(client)) is not None:
                snode.client_activity.registration.unregister(found)

    @rule(limited=st.booleans())
    def limit(self, *, limited: bool) -> None:
        """Set or remove a limit."""
        rules = [FlowRule(FlowUnit.REQUESTS, 1.0, topic="t1")] if limited else []
        for snode in self.snodes:
            snode.flow.replace(rules)


RepeatedCalls.TestCase.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)
TestRepeatedCalls = RepeatedCalls.TestCase
