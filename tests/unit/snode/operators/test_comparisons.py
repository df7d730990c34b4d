"""Findings from the answers of all processes."""

from ortoo.common.errors import Unavailable
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.rpc.operators.comparisons import (
    ProbedProcess,
    differing_directories,
    differing_versions,
    unexamined_processes,
    unknown_name_servers,
    unreachable_processes,
)
from ortoo.v1 import findings_pb2 as pb

ENODE = ("enode", "e", "e:1")


def answer(role: str, name: str, directory_id: str = "", *, calls: dict[str, str] | None = None) -> ProbedProcess:
    """A process that answered; `calls` are the errors of a snode's calls of enodes."""
    process = pb.ExaminedProcess(role=role, name=name, directory_id=directory_id, name_servers=["ns:1"])
    called = [pb.CalledProcess(role="enode", name=one, address=f"{one}:1", error=e) for one, e in (calls or {}).items()]
    return ProbedProcess(role, name, f"{name}:1", pb.ListFindingsResponse(processes=[process], called=called))


def test_an_enode_is_reported_with_the_snodes_that_reach_it_and_those_that_do_not() -> None:
    """If no snode reaches it, the enode is the cause; otherwise the network between the two is."""
    away = ProbedProcess(*ENODE, error=Unavailable("no route"))
    (one,) = unreachable_processes("s0", [away, answer("snode", "s1", calls={"e": ""})])
    assert "does not answer snode s0: no route. It answers s1" in one.observed
    assert "network" in one.remedy
    (one,) = unreachable_processes("s0", [away, answer("snode", "s1", calls={"e": "frozen"})])
    assert "snodes s0, s1" in one.observed
    assert "restart it" in one.remedy
    assert list(unreachable_processes("s0", [answer(*ENODE[:2]), answer("snode", "s1", calls={"e": ""})])) == []


def test_directories_are_compared_with_the_addresses_of_their_name_servers() -> None:
    """A process that follows none yet differs from none."""
    own = answer("snode", "s0", "a").answer
    assert own is not None
    others = [answer("name server", "ns:1", "a"), answer("enode", "e", "")]
    assert list(differing_directories(own, others)) == []
    (one,) = differing_directories(own, [*others, answer("name server", "ns:2", "b")])
    assert "a: name server ns:1, snode s0" in one.observed
    assert "b: name server ns:2" in one.observed


def test_versions_are_compared_between_all_processes() -> None:
    """During an upgrade the finding names the processes of each version. It ends with the upgrade."""

    def process(role: str, name: str, version: str) -> pb.ListFindingsResponse:
        return pb.ListFindingsResponse(processes=[pb.ExaminedProcess(role=role, name=name, version=version)])

    old = [process("enode", "e", "0.1.0"), process("snode", "s0", "0.1.0")]
    assert list(differing_versions(old)) == []
    (one,) = differing_versions([process("name server", "ns:1", "0.2.0"), *old])
    assert one.name == "versions differ"
    assert "0.1.0: enode e, snode s0" in one.observed
    assert "0.2.0: name server ns:1" in one.observed
    assert not one.critical
    assert list(differing_versions([process("snode", "s0", "0.2.0")])) == []


def test_name_servers_of_other_processes_are_queried_and_need_not_answer() -> None:
    """They may be reachable only for the processes that use them, so that silence is only `not examined`."""
    (found,) = unknown_name_servers([answer("enode", "e")])
    assert (found.address, found.is_indirect) == ("ns:1", True)
    silent = ProbedProcess(found.role, found.name, found.address, error=Unavailable("x"), is_indirect=True)
    assert list(unreachable_processes("s0", [silent])) == []
    (one,) = unexamined_processes(DirectoryCache(), [silent])
    assert "name server ns:1 (no answer)" in one.observed
    assert not one.critical
