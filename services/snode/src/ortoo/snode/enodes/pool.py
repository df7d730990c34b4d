"""Finds the link to an enode by its name, and says at once when there is no hope."""

from ortoo.common.errors import NOT_TAKEN_FIELD, NotFound, OrtooError, Unavailable
from ortoo.snode.cluster.directory import Directory
from ortoo.snode.enodes.link import EnodeLink, Links


class EnodeLinks:
    """The enodes of the directory, reachable."""

    def __init__(self, directory: Directory, links: Links) -> None:
        self._directory = directory
        self._links = links

    def to(self, enode: str) -> EnodeLink:
        """The link to an enode. Errors: Unavailable when it was never heard of, or is known to be away."""
        entry = self._directory.enode(enode)
        if entry is None:
            raise _away(f"no enode named {enode} has registered; start it, or wait for it")
        link = self._links.to(enode, entry.address)
        # A lease may be missing because the name server is new; a connection that works is the better witness.
        if not entry.alive and not link.connected:
            raise _away(f"enode {enode} is away: its lease ran out; retry when it is back")
        return link


def _away(message: str) -> Unavailable:
    return Unavailable(message, field=NOT_TAKEN_FIELD, retry_after_ms=500)


def explained(error: OrtooError) -> OrtooError:
    """What an enode's refusal means for a client: a topic that the directory knows is at worst not there yet."""
    if isinstance(error, NotFound) and error.field in ("topic_id", "queue_id"):
        return Unavailable(f"{error.message}; it may hear of it in a moment, retry", retry_after_ms=100)
    return error
