"""The command without a cluster: its words, and how it says what is wrong."""

import pytest
from typer.testing import CliRunner

from ortoo.cli.app import app, main

NOBODY = "localhost:1"


def test_help_names_every_command() -> None:
    """`ortoo --help` shows what there is."""
    shown = CliRunner().invoke(app, ["--help"]).output
    for command in ("dev", "topic", "group", "send", "tail", "lag", "cluster"):
        assert command in shown


@pytest.mark.parametrize("arguments", [["topic", "creat", "t"], ["send"], ["tail", "t", "-n", "0"]])
def test_wrong_use_is_exit_code_2(arguments: list[str]) -> None:
    """An unknown command, a missing argument and a number out of range are the caller's to fix."""
    assert CliRunner().invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["send", "t", "x", "--property", "novalue", "--address", NOBODY], "NAME=VALUE"),
        (["topic", "list", "--address", "nowhere"], "host:port"),
        (["topic", "create", "t", "--queues", "-1", "--address", NOBODY], "queue_count"),
    ],
)
def test_a_named_error_is_one_line_and_exit_code_1(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes to standard error as "error: what; what to do"."""
    monkeypatch.setattr("sys.argv", ["ortoo", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr()
    assert ended.value.code == 1
    assert output.err.startswith("error: ")
    assert said in output.err
    assert output.err.count("\n") == 1
    assert not output.out
