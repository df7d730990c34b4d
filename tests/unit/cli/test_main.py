"""The command without a cluster: help, exit codes and error output."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ortoo.cli.app import app, main
from ortoo.cli.terminal.output import json_lines
from ortoo.client import Queue
from ortoo.client.admin.enodes.draining import RemainingMessages
from ortoo.client.core.credentials import current_profile
from ortoo.common.errors import NotFound, Unavailable, Unsupported
from ortoo.common.errors.findings import process_version
from ortoo.common.process import entry_point
from ortoo.enode import __main__ as enode
from ortoo.namesrv import __main__ as namesrv
from ortoo.snode import __main__ as snode

UNREACHABLE = "localhost:1"


def test_help_names_every_command() -> None:
    """`ortoo --help` lists all commands."""
    shown = CliRunner().invoke(app, ["--help"]).output
    for command in ("dev", "topic", "group", "send", "tail", "lag", "cluster"):
        assert command in shown


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """The command and every role's process print their version."""
    assert CliRunner().invoke(app, ["--version"]).output == f"ortoo {process_version()}\n"
    roles: tuple[entry_point.RoleDefinition[Any], ...] = (namesrv.ROLE, enode.ROLE, snode.ROLE)
    for role in roles:
        with pytest.raises(SystemExit) as ended:
            entry_point.main(role, ["--version"])
        assert ended.value.code == 0
        assert capsys.readouterr().out == f"ortoo-{role.name} {process_version()}\n"


def test_dev_without_the_servers_names_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ortoo dev` of an installation without servers is an error with the command that installs them."""
    monkeypatch.delitem(sys.modules, "ortoo.cli.dev.cluster", raising=False)
    monkeypatch.setitem(sys.modules, "ortoo.enode.app", None)
    with pytest.raises(Unsupported, match=r"ortoo\.enode\.app is not installed: pip install 'ortoo\[server\]'"):
        CliRunner().invoke(app, ["dev"], catch_exceptions=False)


def test_json_is_an_object_a_line() -> None:
    """Lists have one object per line. Integers of more than 32 bits are strings; floats and booleans are not."""
    large = 2**63
    assert list(json_lines([Queue("t", "e", 1), {"offsets": [large], "at": (1.5, True, None)}])) == [
        '{"topic": "t", "enode": "e", "queue_id": 1}',
        f'{{"offsets": ["{large}"], "at": [1.5, true, null]}}',
    ]
    assert list(json_lines(RemainingMessages("t", "g", 7))) == ['{"topic": "t", "group": "g", "messages": "7"}']
    assert list(json_lines([])) == []


@pytest.mark.parametrize("arguments", [["topic", "creat", "t"], ["send"], ["tail", "t", "-n", "0"]])
def test_wrong_use_is_exit_code_2(arguments: list[str]) -> None:
    """An unknown command, a missing argument and a number out of range are errors of usage."""
    assert CliRunner().invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["send", "t", "x", "--property", "novalue", "--address", UNREACHABLE], "NAME=VALUE"),
        (["topic", "list", "--address", "nowhere"], "host:port"),
        (["topic", "create", "t", "--queues", "-1", "--address", UNREACHABLE], "queue_count"),
    ],
)
def test_a_named_error_is_one_line_and_exit_code_1(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is printed to standard error in one line."""
    monkeypatch.setattr("sys.argv", ["ortoo", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr()
    assert ended.value.code == 1
    assert output.err.startswith("error: ")
    assert said in output.err
    assert output.err.count("\n") == 1
    assert not output.out


def test_a_profile_is_kept_used_and_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only the user can read its file, the secret is never shown, and commands use its address."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for variable in ("ORTOO_ADDRESS", "ORTOO_PROFILE"):
        monkeypatch.setenv(variable, "")
    run = CliRunner().invoke
    kept = run(app, ["profile", "save", "shop", "--address", UNREACHABLE, "--access-key", "ann"], input='s3c"ret\n')
    assert kept.exit_code == 0, kept.output
    file = tmp_path / "ortoo/shop.toml"
    assert file.stat().st_mode & 0o077 == 0
    assert tomllib.loads(file.read_text()) == {"address": UNREACHABLE, "access_key": "ann", "secret_key": 's3c"ret'}
    assert run(app, ["profile", "use", "shop"]).exit_code == 0
    listed = run(app, ["profile", "list", "--json"]).output
    assert json.loads(listed) == {"name": "shop", "current": True, "address": UNREACHABLE, "access_key": "ann"}
    assert "s3c" not in run(app, ["profile", "list"]).output
    assert current_profile() == "shop"
    asked = run(app, ["topic", "list"])
    assert isinstance(asked.exception, Unavailable)
    assert UNREACHABLE in str(asked.exception)
    assert isinstance(run(app, ["--profile", "absent", "topic", "list"]).exception, NotFound)
