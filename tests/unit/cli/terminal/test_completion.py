"""Shell completion without a reachable cluster offers nothing, soon, and prints nothing."""

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ortoo.cli.app import app
from ortoo.cli.terminal import completion


def offered(words: str) -> str:
    """The completions for bash at the end of `words`."""
    environ = {"_ORTOO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    said = CliRunner().invoke(app, [], env=environ, prog_name="ortoo")
    assert said.exit_code == 0, said.output
    return said.output


def test_commands_are_offered() -> None:
    """Commands are offered without a request to a cluster."""
    assert offered("ortoo topic un").split() == ["undelete"]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "http://x", "no-such-host.invalid:8081"])
def test_where_nobody_is_nothing_is_offered(
    address: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed either, because it would appear in the command line."""
    monkeypatch.setattr(completion, "TIMEOUT_S", 0.3)
    monkeypatch.setenv("ORTOO_ADDRESS", address)
    for words in ("ortoo topic describe o", "ortoo group describe o", "ortoo enode drain e", "ortoo tx list --topic o"):
        assert offered(words).strip() == ""
    assert "".join(capfd.readouterr()) == ""


def test_a_frozen_cluster_does_not_hold_the_shell(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A server that accepts the connection and does not answer delays the shell by LIMIT_S at most."""
    monkeypatch.setattr(completion, "TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        address = f"127.0.0.1:{frozen.getsockname()[1]}"
        assert offered(f"ortoo topic describe --address {address} o").strip() == ""
    assert "".join(capfd.readouterr()) == ""


def test_profiles_are_offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Profiles are offered by name, and an unreadable one does not prevent completion."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(completion, "TIMEOUT_S", 0.3)
    (tmp_path / "ortoo").mkdir()
    for name in ("shop", "shed", "bank"):
        (tmp_path / "ortoo" / f"{name}.toml").write_text("no TOML")
    assert offered("ortoo profile use sh").split() == ["shed", "shop"]
    assert offered("ortoo --profile b").split() == ["bank"]
    assert offered("ortoo --profile shop topic describe o").strip() == ""
