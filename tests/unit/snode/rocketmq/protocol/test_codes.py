"""Every error has a code, and the code that its field asks for."""

import pytest

from apache.rocketmq.v2.definition_pb2 import Code
from ortoo.common import errors
from ortoo.common.errors.status import TABLE
from ortoo.snode.rocketmq.protocol.codes import (
    BY_FIELD,
    BY_KIND,
    GrpcProxyError,
    code_of,
    common_status,
    ok_status,
    status_of,
)


def test_every_kind_of_error_has_a_code() -> None:
    """The table of the gRPC status and the table of codes have the same kinds, each once."""
    kinds = [kind for kind, _ in BY_KIND]
    assert sorted(kind.__name__ for kind in kinds) == sorted(kind.__name__ for kind, _, _ in TABLE)
    assert len(set(kinds)) == len(kinds)
    assert len({(kind, field) for kind, field, _ in BY_FIELD}) == len(BY_FIELD)


@pytest.mark.parametrize(("kind", "code"), BY_KIND)
def test_an_error_of_no_known_field_has_its_kinds_code(kind: type[errors.OrtooError], code: "Code.ValueType") -> None:
    """Clients see the code of the table; the text begins with its name, which some programs look for."""
    status = status_of(kind("words", field="something"))
    assert (status.code, status.message) == (code, f"{Code.Name(code)}: something: words")


def test_statuses_name_their_codes_as_the_contract_spells_them() -> None:
    """Also those of calls that succeed, and of answers with several entries."""
    assert (ok_status().code, ok_status().message) == (Code.OK, "OK")
    invalid = Code.INVALID_RECEIPT_HANDLE
    assert common_status([invalid, invalid]).message == "INVALID_RECEIPT_HANDLE"
    assert common_status([Code.OK, invalid]).message.startswith("MULTIPLE_RESULTS: ")
    assert status_of(GrpcProxyError(Code.BAD_REQUEST, "no entry")).message == "BAD_REQUEST: no entry"


def test_another_leader_is_a_server_that_cannot_answer() -> None:
    """The protocol has no code for another leader: clients retry, as after a timeout."""
    assert code_of(errors.NotLeader("member 2 leads")) == Code.PROXY_TIMEOUT


@pytest.mark.parametrize(("kind", "field", "code"), BY_FIELD)
def test_the_field_decides_wherever_it_stands(kind: type[errors.OrtooError], field: str, code: int) -> None:
    """A field counts as a whole name, below a message, and with an index or a key behind it."""
    for path in (field, f"messages[3].{field}", f"messages[3].{field}[1]", f"messages[0].{field}['a.b']"):
        assert code_of(kind("words", field=path)) == code


def test_a_code_of_its_own_stands_as_it_is() -> None:
    """Errors that only the protocol has keep the protocol's code."""
    assert status_of(GrpcProxyError(Code.MESSAGE_BODY_EMPTY, "no body")).code == Code.MESSAGE_BODY_EMPTY


def test_entries_that_agree_give_their_code_and_others_say_that_results_differ() -> None:
    """The status of the entries is theirs, or MULTIPLE_RESULTS; without entries it is a defect."""
    assert common_status([Code.OK, Code.OK]).code == Code.OK
    assert common_status([Code.INVALID_RECEIPT_HANDLE]).code == Code.INVALID_RECEIPT_HANDLE
    assert common_status([Code.OK, Code.INVALID_RECEIPT_HANDLE]).code == Code.MULTIPLE_RESULTS
    assert common_status([]).code == Code.INTERNAL_SERVER_ERROR
