"""Only the names in a caller's certificate decide on its role."""

from collections.abc import Iterable, Mapping

import pytest

from ortoo.common.cluster.role_names import NAMES_MAX, CertificateNames, CertificateRoles, Role, RoleNames
from ortoo.common.errors import Invalid

DEFAULT = CertificateRoles(RoleNames(), "ortoo.cluster")


def context(
    *dns: str, uris: Iterable[str] = (), mails: Iterable[str] = (), common_name: str = ""
) -> Mapping[str, Iterable[bytes]]:
    """The data that gRPC reports for a connection whose caller showed a certificate with these names."""
    kinds = {"peer_dns": dns, "peer_uri": (*uris,), "peer_email": (*mails,)}
    found = {key: [name.encode() for name in names] for key, names in kinds.items() if names}
    found["x509_subject_alternative_name"] = [name for names in found.values() for name in names]
    return found | {"x509_common_name": [common_name.encode()], "transport_security_type": [b"ssl"]}


def roles(of: CertificateRoles, auth_context: Mapping[str, Iterable[bytes]]) -> set[Role]:
    """The roles of a caller with such a connection."""
    found = of.of(CertificateNames.of(auth_context))
    assert of.of_connection(auth_context) == of.of_connection(auth_context) == found
    return set(found)


@pytest.mark.parametrize("role", Role)
def test_a_role_is_known_by_its_name_below_the_shared_one(role: Role) -> None:
    """The default names are the role's own and the one below the name that all certificates share."""
    assert roles(DEFAULT, context("ortoo.cluster", f"{role}.ortoo.cluster")) == {role}
    assert roles(DEFAULT, context(role.value)) == {role}
    assert roles(CertificateRoles(RoleNames()), context(role.value)) == {role}


@pytest.mark.parametrize(
    "stranger",
    [
        context(),
        context("ortoo.cluster"),
        context("web.example"),
        context("snode.example"),
        context("a.snode.ortoo.cluster"),
        context("snode.ortoo.cluster.example"),
        context("*.ortoo.cluster"),
        context("xsnode"),
        context(common_name="snode"),
        context("web.example", mails=["snode"], common_name="snode.ortoo.cluster"),
        context(uris=["snode", "spiffe://example/snode", "https://snode.ortoo.cluster"]),
    ],
)
def test_every_other_certificate_is_a_strangers(stranger: Mapping[str, Iterable[bytes]]) -> None:
    """The shared name, other names, the common name and mail addresses give no role."""
    assert roles(DEFAULT, stranger) == set()


def test_an_operator_chooses_the_names() -> None:
    """Given names replace only the default names of that role; DNS names are case-insensitive."""
    chosen = CertificateRoles(RoleNames(snode="Proxy.Example; *.proxies.example;"), "ortoo.cluster")
    for name in ("proxy.example", "PROXY.example", "a.proxies.example"):
        assert roles(chosen, context(name)) == {Role.SNODE}
    for name in ("snode", "snode.ortoo.cluster", "proxies.example", "a.b.proxies.example", ".proxies.example"):
        assert roles(chosen, context(name)) == set()
    assert roles(chosen, context("enode.ortoo.cluster")) == {Role.ENODE}


def test_one_name_may_stand_for_several_roles() -> None:
    """As during an upgrade of a cluster whose processes all have the same certificate."""
    shared = CertificateRoles(RoleNames(enode="ortoo.cluster", snode="ortoo.cluster"), "ortoo.cluster")
    assert roles(shared, context("ortoo.cluster")) == {Role.ENODE, Role.SNODE}


def test_a_spiffe_uri_is_compared_by_segments() -> None:
    """An asterisk is one whole segment of the path; a DNS name with the same text does not match."""
    chosen = CertificateRoles(RoleNames(snode="spiffe://example/ns/*/sa/snode"))
    assert roles(chosen, context(uris=["spiffe://example/ns/prod/sa/snode"])) == {Role.SNODE}
    for uri in ("spiffe://other/ns/prod/sa/snode", "spiffe://example/ns/sa/snode", "spiffe://example/ns/a/b/sa/snode"):
        assert roles(chosen, context(uris=[uri])) == set()
    assert roles(chosen, context("spiffe://example/ns/prod/sa/snode")) == set()


@pytest.mark.parametrize(
    "names",
    [
        "*", "*.*", "a.*.example", "a*.example", "a b", "snode..example", "spiffe://example", "spiffe://*/snode",
        "spiffe://example/*", "spiffe://example/*/*", "https://example/snode", "-a.example", "snode,enode",
    ],
)  # fmt: skip
def test_what_is_no_name_is_refused(names: str) -> None:
    """The error names the setting; a pattern that matches every certificate is refused too."""
    with pytest.raises(Invalid, match="expected a DNS name") as refused:
        RoleNames(enode=f"enode.example;{names}").check()
    assert refused.value.field == "role_names.enode"


def test_names_have_a_limit() -> None:
    """Too many names are refused before they are compared with a certificate."""
    RoleNames(snode=";".join(f"s{n}.example" for n in range(NAMES_MAX))).check()
    with pytest.raises(Invalid, match="at most 64"):
        RoleNames(snode=";".join(f"s{n}.example" for n in range(NAMES_MAX + 1))).check()


def test_what_an_error_repeats_of_a_certificate_is_bounded_and_printable() -> None:
    """The certificate is the caller's: it may have thousands of names with any characters in them."""
    assert str(CertificateNames.of(context("a.example", uris=["spiffe://x/y"]))) == "a.example, spiffe://x/y"
    assert "common name, web, does not count" in str(CertificateNames.of(context(common_name="web")))
    hostile = str(CertificateNames.of(context(*(f"\x1b]52;{n}" + "x" * 10_000 for n in range(1_000)))))
    assert len(hostile) < 1_000
    assert hostile.isprintable()
    assert hostile.endswith("and 995 more")
