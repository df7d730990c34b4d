"""Derives the role of a caller of an inner port from the names in its certificate; without I/O."""

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from ortoo.common.errors import Invalid

NAMES_MAX = 64
"""Maximum number of names of one role."""
SHOWN_NAMES_MAX = 5
"""Maximum number of names from the caller's certificate, or from the settings, in an error."""
SHOWN_CHARACTERS_MAX = 100
CACHED_CONNECTIONS_MAX = 1_024
"""Maximum number of certificates whose roles are cached, because finding the roles costs more than the rest of the
check."""
_DNS = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\Z")
_SPIFFE = re.compile(r"spiffe://[a-z0-9._-]+(/([A-Za-z0-9._-]+|\*))+\Z")
SPIFFE = "spiffe://"
DNS, URI = "peer_dns", "peer_uri"
"""gRPC's names for these kinds of alternative names."""


class Role(enum.StrEnum):
    """A kind of caller of inner ports. There is no role for name servers, because they call no other process."""

    ENODE = "enode"
    SNODE = "snode"
    OPERATOR = "operator"
    """A person, or a tool of the operators, that calls a name server or an enode directly."""


@dataclass(frozen=True)
class RoleNames:
    """The names in certificates that stand for each role, as the operator has chosen them."""

    enode: str = ""
    """The names of enodes, separated by `;`. A name is a DNS name or a SPIFFE URI among the certificate's alternative
    names. The common name does not count. `*` matches the whole first label of a DNS name, or a whole segment of a
    URI's path. Empty = enode, and enode.NAME where NAME is tls_cluster_name."""
    snode: str = ""
    """The names of snodes, in the form of role_names.enode. Empty = snode, and snode.NAME."""
    operator: str = ""
    """The names of operators and their tools, in the form of role_names.enode. Empty = operator, and operator.NAME."""

    def check(self) -> None:
        """Refuse texts that no certificate can have as a name. Errors: Invalid, which names the setting."""
        for role in Role:
            chosen = self.names_of(role)
            if len(chosen) > NAMES_MAX:
                raise Invalid(f"{len(chosen)} names; expected at most {NAMES_MAX}", field=setting_of(role))
            for name in chosen:
                if not (_DNS.match(name) or _is_spiffe(name)):
                    raise Invalid(
                        f"{name!r} cannot be a name in a certificate; expected a DNS name such as snode.ortoo.cluster "
                        "or *.snodes.example, or a SPIFFE URI such as spiffe://example/ns/*/sa/snode",
                        field=setting_of(role),
                    )

    def names_of(self, role: Role) -> tuple[str, ...]:
        """The names that the operator gave a role; DNS names are compared in lower case."""
        given = (name.strip() for name in str(getattr(self, role)).split(";"))
        return tuple(name if name.startswith(SPIFFE) else name.lower() for name in given if name)


def setting_of(role: Role) -> str:
    """The setting with a role's names."""
    return f"role_names.{role}"


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """The names in the certificate that a caller showed."""

    dns: tuple[str, ...]
    uris: tuple[str, ...]
    common_name: str

    @classmethod
    def of(cls, auth_context: Mapping[str, Iterable[bytes]]) -> Self:
        """The names that gRPC reports for a connection.

        gRPC also lists all alternative names without their kind. A mail address in that list could pose as a DNS name,
        so the list is not used.
        """

        def all_of(key: str) -> tuple[str, ...]:
            return tuple(one.decode(errors="replace") for one in auth_context.get(key, ()))

        dns = tuple(name.lower() for name in all_of(DNS))
        return cls(dns, all_of(URI), next(iter(all_of("x509_common_name")), ""))

    def __str__(self) -> str:
        names = (*self.dns, *self.uris)
        if not names:
            name = _truncate(self.common_name) or "which is empty"
            return f"no DNS name or URI (its common name, {name}, does not count)"
        return format_names(names)


def format_names(names: Sequence[str]) -> str:
    """Some of the names, for an error message."""
    more = f" and {len(names) - SHOWN_NAMES_MAX} more" if len(names) > SHOWN_NAMES_MAX else ""
    return ", ".join(map(_truncate, names[:SHOWN_NAMES_MAX])) + more


class CertificateRoles:
    """Maps the names in certificates to roles. An operator has chosen the names of each role, or they are defaults."""

    def __init__(self, chosen: RoleNames, cluster_name: str = "") -> None:
        """`cluster_name` is the name that the certificates of all processes share; empty = they share none."""
        self._names = {role: chosen.names_of(role) or _default(role, cluster_name) for role in Role}
        self._known = lru_cache(CACHED_CONNECTIONS_MAX)(
            lambda dns, uris: self.of(CertificateNames.of({DNS: dns, URI: uris}))
        )

    def names_of(self, role: Role) -> tuple[str, ...]:
        """The names of a role."""
        return self._names[role]

    def of_connection(self, auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[Role]:
        """The roles of a caller with the names that gRPC reports for its connection; cached by these names."""
        return self._known(tuple(auth_context.get(DNS, ())), tuple(auth_context.get(URI, ())))

    def of(self, presented: CertificateNames) -> frozenset[Role]:
        """The roles of a caller that presented these names; empty if none fits. A name can stand for several roles."""
        return frozenset(
            role for role, names in self._names.items() if any(_has_name(presented, name) for name in names)
        )


def _default(role: Role, cluster_name: str) -> tuple[str, ...]:
    return (role.value, f"{role}.{cluster_name.lower()}") if cluster_name else (role.value,)


def _has_name(presented: CertificateNames, pattern: str) -> bool:
    if pattern.startswith(SPIFFE):
        return any(_matches(pattern.split("/"), uri.split("/")) for uri in presented.uris)
    return any(_matches(pattern.split("."), name.split(".")) for name in presented.dns)


def _matches(pattern: list[str], name: list[str]) -> bool:
    if len(pattern) != len(name):
        return False
    return all(wanted == given or (wanted == "*" and given) for wanted, given in zip(pattern, name, strict=True))


def _is_spiffe(name: str) -> bool:
    return bool(_SPIFFE.match(name)) and any(part != "*" for part in name.removeprefix(SPIFFE).split("/")[1:])


def _truncate(name: str) -> str:
    kept = "".join(one if one.isascii() and one.isprintable() else "?" for one in name[:SHOWN_CHARACTERS_MAX])
    return kept + ("..." if len(name) > SHOWN_CHARACTERS_MAX else "")
