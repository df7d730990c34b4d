"""Refuses calls of inner services unless the caller has a role that may make them."""

from collections.abc import Sequence

from ortoo.common.cluster.role_names import CertificateNames, CertificateRoles, Role, format_names, setting_of
from ortoo.common.cluster.service_settings import InnerSettings
from ortoo.common.errors import Forbidden
from ortoo.common.grpc.cluster_token import ADMIN_TOKEN, CLUSTER_PROOF, ClusterToken, is_token
from ortoo.common.grpc.inner.callers import CALLERS, Roles
from ortoo.common.grpc.layers.arrival import headers_of
from ortoo.common.grpc.layers.layer import Guard, Layer, ServedCall
from ortoo.common.grpc.tls import is_tls

OF_TOKEN: Roles = frozenset({Role.ENODE, Role.SNODE})
"""The roles of a caller that has the cluster's token: one token cannot tell its processes apart."""
OF_ADMIN_TOKEN: Roles = frozenset({Role.OPERATOR})


def inner_guards(settings: InnerSettings, token: ClusterToken | None, admin_token: str = "") -> list[Guard]:
    """The guard of an inner port; none if `settings` have no mutual TLS and `token` is None.

    Callers with the `admin_token` need no proof of the cluster's token, and have the role of operators.
    """
    has_tls = bool(settings.tls_cluster_listen_address)
    certificates = CertificateRoles(settings.role_names, settings.tls_cluster_name) if has_tls else None
    return [] if certificates is None and token is None else [InnerGuard(certificates, token, admin_token)]


class InnerGuard(Guard):
    """Checks the role of every caller. If both certificates and a token are configured, the caller needs both.

    The method is checked before the request is decoded, and the request's fields are checked afterwards. Health checks
    and reflection need no role.
    """

    services = ("/ortoo.v1.",)

    def __init__(
        self, certificates: CertificateRoles | None, token: ClusterToken | None, admin_token: str = ""
    ) -> None:
        """Without `certificates`, calls may be plaintext. Without a `token`, calls need no proof of a token."""
        self._certificates = certificates
        self._token = token
        self._admin_token = admin_token

    def enter(self, call: ServedCall) -> None:
        """Refuse callers without a role that the table of inner methods allows for the method. Errors: Forbidden."""
        callers = CALLERS.get(call.method.name)
        if callers is None:
            raise Forbidden(f"no role may call {call.method.name}: it is missing in the table of inner methods")
        self.check(call, callers.roles)

    def after_decoding(self) -> Sequence[Layer]:
        """The layer that checks the fields of the decoded request."""
        return (FieldGuard(self),)

    def check(self, call: ServedCall, allowed: Roles) -> None:
        """Refuse callers that have none of the `allowed` roles. Errors: Forbidden."""
        name = call.method.name
        if self._certificates is not None:
            _check_certificate(self._certificates, call, allowed)
        if self._token is not None and not (proved := self._roles_of_token(self._token, call)) & allowed:
            raise Forbidden(
                f"{name} is for {_format_roles(allowed)}, and the caller's token stands for {_format_roles(proved)}",
                field=ADMIN_TOKEN,
            )

    def _roles_of_token(self, token: ClusterToken, call: ServedCall) -> Roles:
        """The roles that the caller's token stands for. Errors: Forbidden."""
        headers = headers_of(call.context)
        is_admin = is_token(self._admin_token, headers.get(ADMIN_TOKEN, ""))
        if is_admin and CLUSTER_PROOF not in headers:
            return OF_ADMIN_TOKEN
        token.check(call.method.path, headers.get(CLUSTER_PROOF, ""))
        return OF_TOKEN | OF_ADMIN_TOKEN if is_admin else OF_TOKEN


class FieldGuard(Layer):
    """Refuses requests with fields that the caller's role may not set."""

    services = InnerGuard.services

    def __init__(self, guard: InnerGuard) -> None:
        """`guard` has accepted the caller, and checks its roles again for the fields."""
        self._guard = guard

    def enter(self, call: ServedCall) -> None:
        """Refuse callers that have no role which may set the request's fields. Errors: Forbidden."""
        callers = CALLERS[call.method.name]
        if callers.fields:
            self._guard.check(call, callers.of_request(call.request))


def _check_certificate(certificates: CertificateRoles, call: ServedCall, allowed: Roles) -> None:
    known = call.context.auth_context()
    if not is_tls(known):
        raise Forbidden(
            "this port answers only health checks; processes of the cluster call the port of "
            "tls_cluster_listen_address, and show a certificate (tls_cluster_certificate_file)",
            field="tls_cluster_listen_address",
        )
    if certificates.of_connection(known) & allowed:
        return
    roles = sorted(allowed)
    expected = [name for role in roles for name in certificates.names_of(role)]
    settings = [setting_of(role) for role in roles]
    raise Forbidden(
        f"{call.method.name} is for {_format_roles(allowed)}: expected a certificate for one of "
        f"{format_names(expected)}, and the "
        f"caller's is for {CertificateNames.of(known)}. Call with a certificate of that role, or add the caller's "
        "name to "
        f"{' or '.join(settings)} of this process",
        field=settings[0],
    )


def _format_roles(roles: Roles) -> str:
    return "the role " + " or ".join(sorted(roles))
