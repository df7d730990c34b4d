"""The clusters of a console are that of its settings or those of profiles, and links stay in their cluster."""

import re
from pathlib import Path

import pytest

import ortoo.console
from ortoo.common.errors import Invalid
from ortoo.console.cluster.endpoints import cluster_endpoints
from ortoo.console.settings import ConsoleSettings
from ortoo.console.web.sessions import cookie_name

TEMPLATES = Path(ortoo.console.__file__).parent / "templates"


def test_the_only_cluster_has_no_name() -> None:
    """Its pages keep their addresses."""
    [only] = cluster_endpoints(ConsoleSettings(snode_address="a:1; b:2"), {})
    assert (only.name, only.root, only.addresses, only.tls()) == ("", "", ("a:1", "b:2"), None)
    assert (only.log_fields, only.command_options) == ({}, ())


def test_a_profile_gives_address_and_files_and_no_user(tmp_path: Path) -> None:
    """The first profile is the first cluster. Several addresses are separated as in profiles."""
    (tmp_path / "ortoo").mkdir()
    (tmp_path / "ortoo" / "shop.toml").write_text('address = "a:1,b:2"\naccess_key = "ann"\nsecret_key = "s"\n')
    (tmp_path / "ortoo" / "lab.toml").write_text('address = "c:3"\ntls_ca_file = "system"\n')
    settings = ConsoleSettings(profiles=("shop", "lab"))
    shop, lab = cluster_endpoints(settings, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert (shop.name, shop.root, shop.addresses, shop.tls()) == ("shop", "/clusters/shop", ("a:1", "b:2"), None)
    assert (lab.addresses, lab.tls_files) == (("c:3",), ("system", "", ""))
    assert shop.command_options == ("--profile", "shop")
    assert "ann" not in repr(shop)


def test_a_profile_that_cannot_be_used_prevents_the_start(tmp_path: Path) -> None:
    """The error names the setting and the file. It is logged, and shows no value, which may be a secret."""
    (tmp_path / "ortoo").mkdir()
    (tmp_path / "ortoo" / "bad.toml").write_text("address = 1\n")
    (tmp_path / "ortoo" / "typo.toml").write_text('secretkey = "hunter2"\n')
    (tmp_path / "ortoo" / "number.toml").write_text("secret_key = 8675309\n")
    for name in ("missing", "bad", "typo", "number"):
        with pytest.raises(Invalid, match=f"{name}.toml") as caught:
            cluster_endpoints(ConsoleSettings(profiles=(name,)), {"XDG_CONFIG_HOME": str(tmp_path)})
        assert caught.value.field == "profiles"
        assert "hunter2" not in str(caught.value)
        assert "8675309" not in str(caught.value)


def test_the_cookies_of_clusters_differ() -> None:
    """Also from that of the console before it had profiles."""
    assert cookie_name("localhost:8088", "shop") == "ortoo_console_8088.shop"
    assert len({cookie_name("localhost:8088", one) for one in ("", "shop", "lab")}) == 3


@pytest.mark.parametrize("template", sorted(TEMPLATES.glob("*.html")), ids=lambda one: str(one.name))
def test_links_of_templates_stay_in_their_cluster(template: Path) -> None:
    """An address begins with the root of the cluster. Static files belong to all clusters."""
    text = template.read_text()
    assert re.findall(r'(?:href|action|src|hx-get|data-follow|data-chart)="(/(?!static/)[^"]*)"', text) == []
    assert text.count('import "parts.html" as parts') == text.count('import "parts.html" as parts with context')
