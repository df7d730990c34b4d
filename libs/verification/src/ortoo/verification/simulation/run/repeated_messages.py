"""Messages between replicas that arrive a second time, later, perhaps at a later start of the process."""

from functools import partial

from ortoo.enode.app import RunningEnode
from ortoo.enode.replication.protocol.identity import ReplicaId
from ortoo.enode.replication.protocol.messages import Message
from ortoo.enode.rpc.replicas.message_codec import decode_message
from ortoo.testing.memory_grpc import Packet
from ortoo.testing.simulation.cluster.roles import ReplicaMachine
from ortoo.testing.simulation.kernel.random_streams import happens
from ortoo.testing.simulation.world import World
from ortoo.v1 import replication_pb2 as pb
from ortoo.verification.simulation.duties.replica_duties import METHOD

LATEST_S = 4.0
"""The largest delay of the second arrival."""
REPEATED = 0.2
"""The share of messages that arrive twice."""


class RepeatedMessages:
    """Repeats messages to one replica, or from it, while it is watched."""

    def __init__(self, world: World, machines: dict[str, ReplicaMachine], target: str) -> None:
        """Begin with the next message."""
        self._world = world
        self._machines = machines
        self._target = target
        self._chance = world.random_streams.stream(f"repeated messages {target}")
        world.network.watchers[self._on_packet] = None

    def end(self) -> None:
        """Repeat no further messages. Repetitions under way still arrive."""
        self._world.network.watchers.pop(self._on_packet, None)

    def _on_packet(self, source: str, target: str, packet: Packet) -> bool:
        to = self._machines.get(target)
        if packet.method == METHOD and packet.message and to is not None and self._target in (source, target):
            message = pb.ReplicaMessage.FromString(packet.message)
            decoded = decode_message(message, memoryview(message.frames.content))
            replica = _replica_of(to)
            if decoded is not None and replica is not None and happens(self._chance, REPEATED):
                loop = self._world.loop
                delay_s = self._chance.uniform(0.0, LATEST_S)
                again = partial(self._again, to, replica, decoded)
                loop.call_later(delay_s, again, context=loop.outside.context)
        return False

    def _again(self, machine: ReplicaMachine, replica: ReplicaId, message: Message) -> None:
        """Deliver it, unless the machine has another disk now: a stream begins with the disk that it is for."""
        process = machine.process
        if process is not None and machine.alive and _replica_of(machine) == replica:
            process.spawn("repeated message", _post(machine, message))


async def _post(machine: ReplicaMachine, message: Message) -> None:
    running = machine.running
    if isinstance(running, RunningEnode) and (driver := running.process.replica_service.driver) is not None:
        driver.post(message)


def _replica_of(machine: ReplicaMachine) -> ReplicaId | None:
    running = machine.running
    return running.process.membership.stored.replica if isinstance(running, RunningEnode) else None
