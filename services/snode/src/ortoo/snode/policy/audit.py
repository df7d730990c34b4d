"""The last calls of operators that changed something, and the last refused calls, in memory."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import merge
from typing import Any, Final

from ortoo.common.process.clock import Clock

ENTRIES_MAX: Final = 1_000
"""The number of kept changes, and of kept refused calls."""
TEXT_LENGTH_MAX: Final = 300
"""Maximum length of an error and of a target. An entry has less than 2 KiB, so all of them have 4 MiB."""
READING: Final = ("Describe", "Find", "List", "Tail")
"""The beginnings of the names of AdminService's methods that change nothing."""
CHANGING: Final = frozenset({"DeadLetterService/ReplayDeadLetters", "SettingsService/UpdateSettings"})
"""Methods of other services with which an operator changes something."""
OF_PRODUCERS: Final = ("RecallMessage", "EndTransaction")
"""Methods of producers with which an operator changes something, too. Those of producers are left out."""
NAMED: Final = (
    *("name", "topic", "group", "from_group", "to_group", "to_topic", "enode", "role", "process"),
    *("client_id", "access_key", "store_id", "transaction_id", "recall_handle", "sink_id"),
)
"""The text fields of requests that name the object. No field with data or a secret is one of them."""
NESTED: Final = ("group", "topic", "user", "queue")
"""The messages in requests that have such a field."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One call that changed something, or several refused calls of one user, address and method."""

    at_ms: int
    """When the last call ended."""
    snode: str
    user: str
    """The signed-in user; empty = the call was not signed, or its signature was refused."""
    peer: str
    """The address of the caller, without its port."""
    method: str
    """Such as "AdminService/DeleteTopic"."""
    target: str
    """The names in the request."""
    error: str
    """Why it failed or was refused; empty = it succeeded."""
    count: int
    first_at_ms: int
    """When the first call ended."""


class AuditLog:
    """Two rings of entries. A flood of refused calls fills neither the ring of changes nor more than one entry."""

    def __init__(self, snode: str, clock: Clock) -> None:
        """Begin without entries; `snode` is the name of this snode."""
        self._snode = snode
        self._clock = clock
        self._changes: deque[AuditEntry] = deque(maxlen=ENTRIES_MAX)
        self._refused: OrderedDict[tuple[str, str, str], AuditEntry] = OrderedDict()

    def record_change(self, user: str, peer: str, method: str, target: str, error: str) -> None:
        """Add a call that changed something, or that failed to."""
        self._changes.append(self._entry(user, peer, method, target, error))

    def record_refusal(self, user: str, peer: str, method: str, error: str) -> None:
        """Add a refused call, or count it if calls of this user, address and method were refused before."""
        entry = self._entry(user, peer, method, "", error)
        key = (user, entry.peer, method)
        if (before := self._refused.pop(key, None)) is not None:
            entry = replace(entry, count=before.count + 1, first_at_ms=before.first_at_ms)
        self._refused[key] = entry
        if len(self._refused) > ENTRIES_MAX:
            self._refused.popitem(last=False)

    def latest(self, *, refused: bool) -> Iterator[AuditEntry]:
        """The refused calls or the changes, the latest first."""
        return reversed(list(self._refused.values()) if refused else list(self._changes))

    def _entry(self, user: str, peer: str, method: str, target: str, error: str) -> AuditEntry:
        now_ms, host = self._clock.now_ms(), peer.rpartition(":")[0] or peer
        return AuditEntry(now_ms, self._snode, user, host, method, _cut(target), _cut(error), 1, now_ms)


def is_change(method: str, request: Any, *, by_operator: bool = False) -> bool:
    """Whether a call is one with which an operator changes something. A dry run is none.

    `by_operator` = its caller is known as an operator, which matters for methods of producers.
    """
    service, _, name = method.partition("/")
    if name in OF_PRODUCERS:
        return by_operator
    is_changing = method in CHANGING or (service == "AdminService" and not name.startswith(READING))
    return is_changing and not getattr(request, "dry_run", False)


def is_for_one_snode(request: Any) -> bool:
    """Whether a call concerns only the snode that answers. Snodes forward calls in this form, and clients may use it.

    If it fails it has changed nothing, and the snode that forwarded it records the failure.
    """
    return bool(getattr(request, "local_only", False))


def target_of(request: Any) -> str:
    """The names in a request, such as "topic=orders group=shop"."""
    if request is None:
        return ""
    found = dict(_names(request))
    for field, value in request.ListFields():
        if field.name in NESTED and field.message_type is not None:
            found |= {f"{field.name}.{name}": text for name, text in _names(value)}
    return " ".join(f"{name}={text}" for name, text in found.items())


def latest_of(lists: list[list[AuditEntry]], limit: int) -> list[AuditEntry]:
    """The latest entries of several lists, each with the latest first."""
    found = merge(*lists, key=lambda one: -one.at_ms)
    return [one for one, _ in zip(found, range(limit), strict=False)]


def _names(message: Any) -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        if field.name in NAMED and isinstance(value, str):
            yield field.name, value


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[:TEXT_LENGTH_MAX]} …"
