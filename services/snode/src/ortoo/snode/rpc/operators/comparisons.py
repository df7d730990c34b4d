"""Findings from comparing the answers of all processes. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ortoo.common.errors import OrtooError, Unsupported
from ortoo.common.errors.findings import Finding
from ortoo.common.errors.handshakes import HandshakeFailed, reason_of, remedy_for
from ortoo.common.errors.status import PROCESS_ERRORS
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.v1 import findings_pb2 as pb

NAME_SERVER = "name server"
SHOWN_MAX = 5
"""Maximum number of names of each kind that one finding shows."""
SKEW_MS_MAX = 2_000
"""Limit of clock differences; larger ones make delayed messages late and ages wrong."""
NAME_SERVERS_MAX = 16
"""Maximum number of name servers that are queried because other processes use them."""


@dataclass(frozen=True, slots=True)
class ProbedProcess:
    """A process and its answer or error."""

    role: str
    name: str
    address: str
    answer: pb.ListFindingsResponse | None = None
    error: OrtooError | None = None
    ahead_ms: int = 0
    """The time by which its clock is ahead of this snode's."""
    is_away: bool = False
    """Whether it has no lease. Its last address is called nevertheless, because it may run and fail to register."""
    is_indirect: bool = False
    """Whether only other processes use it, so that this snode may not be able to reach it."""

    @property
    def text(self) -> str:
        """The process in a finding."""
        return f"{self.role} {self.name}"

    @property
    def failure(self) -> str:
        """Why it did not answer; empty for an answer, also that of an older process without this service."""
        return "" if self.error is None or isinstance(self.error, Unsupported) else reason_of(self.error)


def called_process(probed: ProbedProcess) -> pb.CalledProcess:
    """The message about a process that this snode called."""
    return pb.CalledProcess(role=probed.role, name=probed.name, address=probed.address, error=probed.failure)


def unknown_name_servers(probed: Sequence[ProbedProcess]) -> list[ProbedProcess]:
    """The name servers that other processes use, and that were not among the probed ones."""
    used = {
        address: None
        for one in probed
        if one.answer is not None
        for process in one.answer.processes
        for address in process.name_servers
    }
    known = {one.address for one in probed if one.role == NAME_SERVER}
    unknown = [one for one in used if one not in known][:NAME_SERVERS_MAX]
    return [ProbedProcess(NAME_SERVER, one, one, is_indirect=True) for one in unknown]


def away_enodes(directory: DirectoryCache, probed: Sequence[ProbedProcess]) -> Iterator[Finding]:
    """The enodes without a lease on which topics have queues; `probed` has those whose last address is known."""
    called = {one.name: one for one in probed if one.role == "enode"}
    for enode in directory.expected_enodes():
        if enode.alive:
            continue
        topics = directory.topics_on(enode.name)
        count = f"{len(topics)} topic has" if len(topics) == 1 else f"{len(topics)} topics have"
        at = f" ({enode.address})" if enode.address else ""
        state, remedy = _state_of_away(called.get(enode.name))
        yield Finding(
            "enode unavailable",
            f"enode {enode.name}{at} has no lease{state}, and {count} queues on it ({_shown(topics)})",
            "the messages on it wait, and sends to its queues fail or go to other enodes",
            f"{remedy}. If it is permanently lost, `ortoo enode forget {enode.name}` shows the loss",
            subject=enode.name,
        )


def _state_of_away(probed: ProbedProcess | None) -> tuple[str, str]:
    """The observation of an enode without a lease at its last address, and the remedy."""
    if probed is not None and probed.answer is not None:
        return (
            " although it runs and answers a snode",
            "do not restart it: its own findings have the reason (name server unavailable, registration rejected)",
        )
    error = None if probed is None else probed.error
    if isinstance(error, HandshakeFailed) or (error is not None and error.field.startswith(PROCESS_ERRORS)):
        return (
            f" although a process runs at its address ({reason_of(error)})",
            remedy_for(
                error, "give all processes one cluster_token_file and their roles' certificates, then restart it"
            ),
        )
    return "", "start it again with its volume: its messages are in its log. If it runs, its log has the reason"


def unreachable_processes(own_name: str, probed: Sequence[ProbedProcess]) -> Iterator[Finding]:
    """Processes with a lease, or an address in the settings, that do not answer some or all snodes."""
    calls: dict[tuple[str, str, str], dict[str, str]] = {}
    errors = {(one.role, one.name, one.address): one.error for one in probed}
    for one in probed:
        if one.role == "snode":
            if one.failure:
                yield Finding(
                    "snode unresponsive",
                    f"snode {one.name} ({one.address}) has a lease, and does not answer snode {own_name}: "
                    f"{one.failure}",
                    "its clients wait and fail",
                    remedy_for(one.error, "check its CPU time, its log and the network; restart it if it is frozen"),
                    subject=one.name,
                )
            for call in one.answer.called if one.answer is not None else ():
                calls.setdefault((call.role, call.name, call.address), {})[one.name] = call.error
        elif not (one.is_indirect or one.is_away):
            calls.setdefault((one.role, one.name, one.address), {})[own_name] = one.failure
    for (role, name, address), failures in calls.items():
        failed = {snode: failure for snode, failure in sorted(failures.items()) if failure}
        if failed:
            reached = sorted(failures.keys() - failed.keys())
            yield _unreachable(role, name, address, failed, reached, errors.get((role, name, address)))


def _unreachable(
    role: str, name: str, address: str, failed: dict[str, str], reached: Sequence[str], error: OrtooError | None
) -> Finding:
    """The finding of a process that does not answer `failed`; `error` is that of this snode's call."""
    snodes = f"{'snode' if len(failed) == 1 else 'snodes'} {_shown(list(failed))}"
    reason = next(iter(failed.values()))
    if role == NAME_SERVER:
        impact = "when no name server is left, processes do not learn of changes of topics, groups and processes"
    else:
        impact = f"requests that need it wait and fail, for clients of {snodes}"
    kind = "name server unavailable" if role == NAME_SERVER else f"{role} unresponsive"
    observed = (
        f"{role} {name}{'' if role == NAME_SERVER else f' ({address}) has a lease, and'} does not answer {snodes}"
    )
    if reached:
        return Finding(
            kind,
            f"{observed}: {reason}. It answers {_shown(reached)}",
            impact,
            f"check the network between it and {snodes} (routes, firewall, NetworkPolicy), and their certificates and "
            "cluster_token_file",
            subject=name,
        )
    if role == NAME_SERVER:
        remedy = "start it, or check its log and its database; or remove it from namesrv_address"
    else:
        remedy = "check its CPU time, its log and the network; restart it if it is frozen"
    return Finding(kind, f"{observed}: {reason}", impact, remedy_for(error, remedy), subject=name)


def differing_directories(own: pb.ListFindingsResponse, probed: Sequence[ProbedProcess]) -> Iterator[Finding]:
    """Name servers, and the processes that follow them, with different directories."""
    users: dict[str, list[str]] = {}
    for process in own.processes:
        users.setdefault(process.directory_id, []).append(f"{process.role} {process.name}")
    for one in probed:
        for process in one.answer.processes if one.answer is not None else ():
            named = one.text if process.role == NAME_SERVER else f"{process.role} {process.name}"
            users.setdefault(process.directory_id, []).append(named)
    users.pop("", None)  # it follows none yet, or it is older
    if len(users) > 1:
        listed = "; ".join(f"{one}: {_shown(sorted(names, key=_name_servers_first))}" for one, names in users.items())
        yield Finding(
            "directories differ",
            f"processes of this cluster use {len(users)} directories ({listed})",
            "topics, groups and users of one directory are unknown to the processes of another: sends and receives "
            "fail, or wait",
            "decide which directory is the right one (`ortoo topic list` at each snode). Give all name servers its "
            "database_url (docs/operations/name-servers.md), and remove the others from namesrv_address",
        )


def _name_servers_first(text: str) -> tuple[bool, str]:
    return not text.startswith(NAME_SERVER), text


def differing_membership_stores(answers: Iterable[pb.ListFindingsResponse]) -> Iterator[Finding]:
    """Snodes that share the members of groups in different stores."""
    users: dict[str, list[str]] = {}
    for answer in answers:
        for process in answer.processes:
            if process.membership_store:
                users.setdefault(process.membership_store, []).append(f"snode {process.name}")
    if len(users) > 1:
        listed = "; ".join(f"{store}: {_shown(sorted(names))}" for store, names in sorted(users.items()))
        yield Finding(
            "membership stores differ",
            f"snodes share the members of groups in {len(users)} stores ({listed})",
            "the snodes of each store assign all queues of a group to their own members, so that consumers take the "
            "queues from each other",
            "give all snodes one redis_url (server and database) and one redis_prefix, and restart those that change",
        )


def differing_clocks(probed: Sequence[ProbedProcess]) -> Iterator[Finding]:
    """Processes whose clock differs from this snode's."""
    for one in probed:
        if abs(one.ahead_ms) > SKEW_MS_MAX:
            ahead = "ahead of" if one.ahead_ms > 0 else "behind"
            yield Finding(
                "clock differs",
                f"the clock of {one.text} is {abs(one.ahead_ms) / 1000:.1f} s {ahead} a snode's",
                "delayed messages are early or late, ages and expiry are wrong",
                "synchronise the clocks (chronyc tracking, timedatectl)",
                subject=one.text,
            )


def differing_versions(answers: Iterable[pb.ListFindingsResponse]) -> Iterator[Finding]:
    """Processes that run different versions."""
    by_version: dict[str, list[str]] = {}
    for answer in answers:
        for process in answer.processes:
            by_version.setdefault(process.version, []).append(f"{process.role} {process.name}")
    if len(by_version) > 1:
        listed = "; ".join(f"{version}: {_shown(names)}" for version, names in sorted(by_version.items()))
        yield Finding(
            "versions differ",
            f"processes run different versions ({listed})",
            "features of the newer version do not work everywhere",
            "finish the upgrade: name servers first, then enodes, then snodes",
            critical=False,
        )


def unexamined_processes(directory: DirectoryCache, probed: Sequence[ProbedProcess]) -> Iterator[Finding]:
    """The processes that were not examined, because they are away, are older, or do not answer."""
    answering = {one.name for one in probed if one.is_away and one.answer is not None}
    missing = [
        f"enode {enode.name} (no lease)"
        for enode in directory.expected_enodes()
        if not enode.alive and enode.name not in answering
    ]
    for one in probed:
        if one.is_away:
            continue
        if one.error is not None:
            missing.append(f"{one.text} (no answer)" if one.failure else f"{one.text} (an older version)")
        elif one.role == "snode" and one.answer is not None and not one.answer.called:
            missing.append(f"the connections of {one.text} (an older version)")
    if missing:
        yield Finding(
            "not examined",
            f"these processes were not examined: {_shown(missing)}",
            "problems that only they know of are missing here",
            "solve the other findings first, then run the doctor again; or read the logs of these processes",
            critical=False,
        )


def _shown(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return f"{', '.join(names[:SHOWN_MAX])}{more}"
