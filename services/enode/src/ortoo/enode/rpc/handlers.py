"""What all methods of EnodeService share: the parts of the enode that they call."""

from dataclasses import dataclass, field

from ortoo.enode.cluster.topic_copies import TopicCopies
from ortoo.enode.deferred.identified import IdentifiedIntake
from ortoo.enode.deferred.intake import Intake
from ortoo.enode.pops.leasing import Leasing
from ortoo.enode.pops.sending_back import SendingBack
from ortoo.enode.rpc.streams.all import Streams
from ortoo.enode.rpc.streams.attach import AttachedSnodes
from ortoo.enode.store.store import Store
from ortoo.v1.enode_pb2_grpc import EnodeServiceServicer


@dataclass(eq=False)
class Handlers(EnodeServiceServicer):
    """Some methods of EnodeService. A topic that a request names is waited for a moment before it is called unknown."""

    store: Store
    topics: TopicCopies
    intake: Intake
    identified: IdentifiedIntake
    pops: Leasing
    sending: SendingBack
    attached: AttachedSnodes
    streams: Streams = field(init=False)
    """Given by the server, which ends them when it stops."""
