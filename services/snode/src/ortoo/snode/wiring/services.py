"""The services of a snode, made from its ground and its parts."""

from ortoo.snode.rocketmq.rpc.gateway import open_gateway
from ortoo.snode.rpc import services
from ortoo.snode.rpc.services import Services
from ortoo.snode.wiring.ground import Ground
from ortoo.snode.wiring.parts import Parts


def make_services(ground: Ground, parts: Parts) -> Services:
    """Put a service before each group of parts."""
    gateway = open_gateway(
        ground.settings,
        ground.incarnation,
        clock=ground.clock,
        randomness=ground.randomness,
        background=ground.background,
        name_server=ground.name_server,
        directory=ground.directory,
        watch=ground.watch,
        enodes=ground.enodes,
        membership=ground.membership,
        arrival=parts.arrival,
        sendable=parts.sendable,
        publisher=parts.publisher,
        delayed=parts.delayed,
        transactions=parts.transactions,
        reading=parts.reading,
        offsets=parts.offsets,
        popping=parts.popping,
    )
    return services.make_services(
        ground.settings.name,
        ground.incarnation,
        gateway,
        clock=ground.clock,
        background=ground.background,
        channels=ground.channels,
        name_server=ground.name_server,
        directory=ground.directory,
        watch=ground.watch,
        enodes=ground.enodes,
        sendable=parts.sendable,
        arrival=parts.arrival,
        group_settings=parts.group_settings,
        group_topics=parts.group_topics,
        modes=parts.modes,
        publisher=parts.publisher,
        delayed=parts.delayed,
        transactions=parts.transactions,
        reading=parts.reading,
        pulling=parts.pulling,
        popping=parts.popping,
        sessions=parts.sessions,
        clients=parts.clients,
        client_directory=parts.found_clients,
        flow=parts.flow,
        flow_file=parts.flow_file,
    )
