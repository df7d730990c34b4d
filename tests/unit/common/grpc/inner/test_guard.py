"""A caller of an inner method needs the certificate of a permitted role, the cluster's token, or both."""

import contextlib
from typing import Any, cast

import pytest

from ortoo.common.cluster.role_names import CertificateRoles, Role, RoleNames
from ortoo.common.cluster.service_settings import InnerSettings
from ortoo.common.errors import Forbidden
from ortoo.common.grpc.cluster_token import ADMIN_TOKEN, CLUSTER_PROOF, ClusterToken
from ortoo.common.grpc.inner.callers import CALLERS
from ortoo.common.grpc.inner.guard import InnerGuard, inner_guards
from ortoo.common.grpc.layers.layer import Method, ServedCall
from ortoo.v1 import namesrv_pb2
from ortoo.verification.time.virtual_clock import VirtualClock

TOKEN, ADMIN = ClusterToken("a-token-of-this-cluster", VirtualClock()), "a-token-of-the-operators"
CERTIFICATES = CertificateRoles(RoleNames(operator="ann.example"), "ortoo.cluster")


class Context:
    """The context of a call over a connection."""

    def __init__(self, names: tuple[str, ...] | None, headers: dict[str, str]) -> None:
        self._names = names
        self._headers = headers

    def auth_context(self) -> dict[str, list[bytes]]:
        """The names in gRPC's form; none for a call in plaintext."""
        if self._names is None:
            return {}
        return {"transport_security_type": [b"ssl"], "peer_dns": [name.encode() for name in self._names]}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """The headers."""
        return (*self._headers.items(),)


def calling(
    guard: InnerGuard,
    name: str,
    *names: str,
    request: Any = None,
    is_clear: bool = False,
    proves: bool = False,
    admin: str = "",
) -> None:
    """Make a call with a certificate for these names. Errors: Forbidden."""
    path = f"/ortoo.v1.{name}"
    headers = dict(TOKEN.headers(path, None)) if proves else {}
    if admin:
        headers[ADMIN_TOKEN] = admin
    method = Method(path, name, is_request_stream=False, is_response_stream=False, read=bytes, write=bytes)
    call = ServedCall(method, b"", cast("Any", Context(None if is_clear else names, headers)))
    guard.enter(call)
    call.request = request
    for layer in guard.after_decoding():
        layer.enter(call)


def refused(*args: Any, **kwargs: Any) -> Forbidden:
    """The error of such a call."""
    with pytest.raises(Forbidden) as error:
        calling(*args, **kwargs)
    return error.value


def test_a_refusal_names_what_was_shown_what_was_expected_and_the_setting() -> None:
    """The error names the certificate's and the expected names, and the setting to change."""
    guard = InnerGuard(CERTIFICATES, None)
    calling(guard, "NameService/GetUser", "snode.ortoo.cluster")
    error = refused(guard, "NameService/GetUser", "ortoo.cluster", "web.example")
    assert error.field == "role_names.snode"
    for said in ("NameService/GetUser", "ortoo.cluster, web.example", "snode, snode.ortoo.cluster", "role_names.snode"):
        assert said in error.message
    both = refused(guard, "NameService/PutUser", "enode.ortoo.cluster")
    assert "ann.example, snode, snode.ortoo.cluster" in both.message
    assert "role_names.operator or role_names.snode" in both.message


def test_a_call_in_the_clear_is_told_of_the_other_port() -> None:
    """Valid tokens do not change that."""
    guard = InnerGuard(CERTIFICATES, TOKEN, ADMIN)
    error = refused(guard, "NameService/ListTopics", is_clear=True, proves=True, admin=ADMIN)
    assert error.field == "tls_cluster_listen_address"


def test_a_method_without_a_row_is_refused_to_everybody() -> None:
    """A new method that is missing in the table is refused to all callers."""
    names = [f"{role}.ortoo.cluster" for role in ("snode", "enode")]
    for guard in (InnerGuard(CERTIFICATES, None), InnerGuard(None, TOKEN, ADMIN)):
        assert "no role may call" in refused(guard, "NameService/New", *names, proves=True).message


def test_the_method_is_checked_before_the_request_is_decoded() -> None:
    """For every row, the fields of a request are only read after it is decoded, and never for an unknown caller."""
    guard = InnerGuard(CERTIFICATES, None)
    for name, callers in CALLERS.items():
        method = Method(
            f"/ortoo.v1.{name}", name, is_request_stream=False, is_response_stream=False, read=bytes, write=bytes
        )
        for role in (None, *Role):
            names = ("web.example",) if role is None else tuple(CERTIFICATES.names_of(role))
            may = role in callers.roles
            call = ServedCall(method, b"", cast("Any", Context(names, {})))
            with contextlib.nullcontext() if may else pytest.raises(Forbidden):
                guard.enter(call)


def test_some_fields_are_for_fewer_roles() -> None:
    """Keys of handles are for snodes; a process can only end leases of its own role."""
    guard = InnerGuard(CERTIFICATES, None)
    routes, keys = (namesrv_pb2.WatchRoutesRequest(include_handle_keys=wanted) for wanted in (False, True))
    for name in ("snode.ortoo.cluster", "enode.ortoo.cluster", "ann.example"):
        calling(guard, "NameService/WatchRoutes", name, request=routes)
    calling(guard, "NameService/WatchRoutes", "snode.ortoo.cluster", request=keys)
    for name in ("enode.ortoo.cluster", "ann.example"):
        assert refused(guard, "NameService/WatchRoutes", name, request=keys).field == "role_names.snode"
    ends = namesrv_pb2.UnregisterRequest(snode="snode-0")
    calling(guard, "NameService/Unregister", "snode.ortoo.cluster", request=ends)
    refused(guard, "NameService/Unregister", "enode.ortoo.cluster", request=ends)


def test_the_clusters_token_stands_for_its_processes_and_the_operators_for_them() -> None:
    """One token cannot distinguish enodes from snodes; the operators' token permits the methods of operators."""
    guard = InnerGuard(None, TOKEN, ADMIN)
    for name in ("RegisterEnode", "RegisterSnode", "GetUser", "PutUser"):
        calling(guard, f"NameService/{name}", is_clear=True, proves=True)
        refused(guard, f"NameService/{name}", is_clear=True)
    calling(guard, "NameService/PutUser", is_clear=True, admin=ADMIN)
    calling(guard, "NameService/GetUser", is_clear=True, admin=ADMIN, proves=True)
    for name in ("RegisterEnode", "RegisterSnode", "GetUser"):
        error = refused(guard, f"NameService/{name}", is_clear=True, admin=ADMIN)
        assert "stands for the role operator" in error.message
    refused(guard, "NameService/PutUser", is_clear=True, admin="another-token-of-operators")
    refused(InnerGuard(None, TOKEN), "NameService/PutUser", is_clear=True, admin=ADMIN)


def test_where_there_are_both_a_caller_needs_both() -> None:
    """A token gives an unknown certificate no role, and a certificate does not replace the token."""
    guard = InnerGuard(CERTIFICATES, TOKEN, ADMIN)
    calling(guard, "NameService/GetUser", "snode", proves=True)
    calling(guard, "NameService/PutUser", "ann.example", admin=ADMIN)
    assert refused(guard, "NameService/GetUser", "web.example", proves=True).field == "role_names.snode"
    assert refused(guard, "NameService/PutUser", "web.example", admin=ADMIN).field == "role_names.operator"
    assert refused(guard, "NameService/GetUser", "enode", proves=True).field == "role_names.snode"
    assert refused(guard, "NameService/GetUser", "snode").field == CLUSTER_PROOF


def test_without_certificates_and_token_there_is_no_guard() -> None:
    """As in `ortoo dev`: the operators' token alone protects calls about users, and no port."""
    assert inner_guards(InnerSettings(), None, ADMIN) == []
    assert len(inner_guards(InnerSettings(), TOKEN)) == 1
    assert len(inner_guards(InnerSettings(tls_cluster_listen_address="127.0.0.1:0"), None)) == 1
