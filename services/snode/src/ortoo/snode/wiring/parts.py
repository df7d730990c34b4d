"""What a snode does, part by part. Making the parts starts nothing: who runs when is the app's business."""

from dataclasses import dataclass

from ortoo.snode.clients.directory import ClientDirectory
from ortoo.snode.clients.sessions import ClientSessions
from ortoo.snode.enodes.attachments import Attachments
from ortoo.snode.enodes.queue_locks import QueueLocks
from ortoo.snode.membership.consumer_groups import ConsumerGroups
from ortoo.snode.observe.traces import PushTraces
from ortoo.snode.policy.flow_control import FlowControl
from ortoo.snode.policy.flow_control_file import FlowControlFile
from ortoo.snode.pop.popping import Popping
from ortoo.snode.pull.lag import Lag
from ortoo.snode.pull.offset_moves import OffsetMoves
from ortoo.snode.pull.offsets import Offsets
from ortoo.snode.pull.pulling import Pulling
from ortoo.snode.pull.reading import Reading
from ortoo.snode.push.session import PushParts
from ortoo.snode.push.sessions import Sessions
from ortoo.snode.send.batcher import LaneLimits
from ortoo.snode.send.delayed import Delayed
from ortoo.snode.send.publisher import Publisher
from ortoo.snode.send.transactions import Transactions
from ortoo.snode.topics.arrival import TopicArrival
from ortoo.snode.topics.delivery_modes import DeliveryModes
from ortoo.snode.topics.group_settings import GroupSettings
from ortoo.snode.topics.group_topics import GroupTopics
from ortoo.snode.topics.sendable import SendableTopics
from ortoo.snode.wiring.ground import Ground


@dataclass(frozen=True, slots=True)
class Parts:
    """Sending, reading, groups and their members, and what operators ask for."""

    sendable: SendableTopics
    publisher: Publisher
    delayed: Delayed
    transactions: Transactions
    reading: Reading
    offsets: Offsets
    groups: ConsumerGroups
    group_settings: GroupSettings
    group_topics: GroupTopics
    locks: QueueLocks
    attachments: Attachments
    pushes: PushParts
    sessions: Sessions
    clients: ClientSessions
    pulling: Pulling
    popping: Popping
    modes: DeliveryModes
    arrival: TopicArrival
    lag: Lag
    moves: OffsetMoves
    found_clients: ClientDirectory
    flow: FlowControl
    flow_file: FlowControlFile


def make_parts(ground: Ground) -> Parts:
    """Put the parts together."""
    settings, clock, randomness = ground.settings, ground.clock, ground.randomness
    directory, watch, enodes, background = ground.directory, ground.watch, ground.enodes, ground.background
    groups = ConsumerGroups(directory, ground.membership, clock)
    watch.on_topics(groups.topics_changed)
    reading, offsets = Reading(watch, enodes, background), Offsets(enodes)
    locks = QueueLocks(enodes, background, ground.incarnation, clock=clock, randomness=randomness)
    group_settings = GroupSettings(directory, ground.name_server, auto_create=settings.auto_create_groups)
    arrival = TopicArrival(watch, enodes, clock=clock)
    group_topics = GroupTopics(directory, ground.name_server, arrival)
    sendable = SendableTopics(
        watch,
        ground.name_server,
        arrival,
        auto_create=settings.auto_create_topics,
        queue_count=settings.auto_create_queue_count,
    )
    modes = DeliveryModes(directory, watch, enodes, clock)
    pushes = PushParts(directory, enodes, offsets, groups, locks, background, clock, randomness)
    if ground.tracing is not None:
        pushes.traffic.traces = PushTraces(ground.tracing)
    sessions = Sessions(pushes, watch, group_settings, modes, clock=clock, expiry_s=settings.session_expiry_s)
    clients = ClientSessions(
        groups,
        group_settings,
        modes,
        sessions,
        locks,
        snode=settings.name,
        incarnation=ground.incarnation,
        clock=clock,
        randomness=randomness,
    )
    flow = FlowControl(clock)
    return Parts(
        sendable=sendable,
        publisher=Publisher(
            directory,
            sendable,
            enodes,
            background,
            LaneLimits(ground.enode_timeout_s),
            clock=clock,
            randomness=randomness,
        ),
        delayed=Delayed(watch, enodes),
        transactions=Transactions(directory, sendable, watch, enodes, background, clock=clock, randomness=randomness),
        reading=reading,
        offsets=offsets,
        groups=groups,
        group_settings=group_settings,
        group_topics=group_topics,
        locks=locks,
        attachments=Attachments(
            directory,
            enodes,
            locks,
            background,
            snode=settings.name,
            incarnation=ground.incarnation,
            clock=clock,
            randomness=randomness,
        ),
        pushes=pushes,
        sessions=sessions,
        clients=clients,
        pulling=Pulling(watch, enodes, offsets, group_settings, groups.membership, pushes.traffic, clock),
        popping=Popping(
            directory, watch, enodes, group_settings, group_topics, modes, background, clock, ground.incarnation
        ),
        modes=modes,
        arrival=arrival,
        lag=Lag(watch, enodes, reading),
        moves=OffsetMoves(watch, enodes, reading),
        found_clients=ClientDirectory(settings.name, directory, groups.membership, clients, sessions, randomness),
        flow=flow,
        flow_file=FlowControlFile(settings.flow_control_file, flow),
    )
