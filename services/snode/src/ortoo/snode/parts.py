"""What a snode does, part by part. Making the parts starts nothing: who runs when is the app's business."""

from dataclasses import dataclass

from ortoo.snode.attachments import Attachments
from ortoo.snode.client_directory import ClientDirectory
from ortoo.snode.client_sessions import ClientSessions
from ortoo.snode.consumer_groups import ConsumerGroups
from ortoo.snode.delayed import Delayed
from ortoo.snode.delivery_modes import DeliveryModes
from ortoo.snode.flow_control import FlowControl
from ortoo.snode.flow_control_file import FlowControlFile
from ortoo.snode.ground import Ground
from ortoo.snode.group_settings import GroupSettings
from ortoo.snode.group_topics import GroupTopics
from ortoo.snode.lag import Lag
from ortoo.snode.offset_moves import OffsetMoves
from ortoo.snode.offsets import Offsets
from ortoo.snode.popping import Popping
from ortoo.snode.publish_lane import LaneLimits
from ortoo.snode.publisher import Publisher
from ortoo.snode.pulling import Pulling
from ortoo.snode.push_session import PushParts
from ortoo.snode.queue_locks import QueueLocks
from ortoo.snode.reading import Reading
from ortoo.snode.sendable_topics import SendableTopics
from ortoo.snode.sessions import Sessions
from ortoo.snode.topic_arrival import TopicArrival
from ortoo.snode.traces import PushTraces
from ortoo.snode.transactions import Transactions


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
