"""Settings of a running process: an operator's values count until the next start, which uses the file's."""

import re
from dataclasses import dataclass
from typing import Annotated

import pytest

from ortoo.common.cluster.dynamic_settings import DynamicSettings
from ortoo.common.cluster.service_settings import ServiceSettings
from ortoo.common.errors import Invalid
from ortoo.common.process.settings import LoadedSettings, NumberRange
from ortoo.enode.settings import EnodeSettings
from ortoo.namesrv.settings import NamesrvSettings
from ortoo.snode.settings import SnodeSettings


@dataclass(frozen=True)
class Settings(ServiceSettings):
    """Two live settings, and one that is not live."""

    ENVIRON_PREFIX = "ORTOO_X_"
    LIVE = ("window_ms", "is_open")

    name: str = "x-0"
    listen_address: str = "127.0.0.1:0"
    window_ms: Annotated[int, NumberRange(0, 100)] = 10
    is_open: bool = False
    database_url: str = "postgresql://me:secret@db/x"


class File:
    """A changeable source of settings."""

    def __init__(self) -> None:
        self.settings = Settings()

    def load(self) -> LoadedSettings[Settings]:
        """The same as a role's `load`."""
        return LoadedSettings(self.settings, {"window_ms": "file"})


def begun() -> tuple[File, DynamicSettings[Settings]]:
    """A file, and a process that was started with it."""
    file = File()
    return file, DynamicSettings(file.load(), file.load)


def row(live: DynamicSettings[Settings], name: str) -> tuple[str, str, str | None]:
    """(value, origin, at the next start) of a setting."""
    [found] = [one for one in live.all() if one.name == name]
    return found.value, found.origin, found.at_next_start


def test_what_is_set_is_in_force_and_says_what_the_next_start_takes() -> None:
    """An operator's value has an origin, a history and a finding, and can be reset."""
    _, live = begun()
    applied: list[int] = []
    live.appliers.append(lambda settings: applied.append(settings.window_ms))
    assert row(live, "window_ms") == ("10", "file", None)
    assert row(live, "database_url")[0] == "postgresql://me:***@db/x"
    assert [(one.previous, one.current) for one in live.update({"window_ms": "20"}, changed_by="ann")] == [("10", "20")]
    assert (live.settings.window_ms, applied) == (20, [20])
    assert row(live, "window_ms") == ("20", "operator", "10")
    [finding] = live.findings()
    assert (finding.name, finding.critical) == ("unsaved settings", False)
    assert "window_ms = 10" in finding.impact
    assert "`ortoo settings set x --reset window_ms`" in finding.remedy
    assert live.update({"window_ms": "20"}) == []
    live.update({}, ["window_ms"], changed_by="bob")
    assert row(live, "window_ms") == ("10", "file", None)
    assert list(live.findings()) == []
    assert [(one.name, one.current, one.origin, one.changed_by) for one in live.history] == [
        ("window_ms", "20", "operator", "ann"),
        ("window_ms", "10", "file", "bob"),
    ]


@pytest.mark.parametrize(
    ("values", "reset", "field", "said"),
    [
        ({"is_open": "true", "windov_ms": "1"}, [], "windov_ms", "did you mean window_ms"),
        ({"is_open": "true"}, ["windov_ms"], "windov_ms", "did you mean window_ms"),
        ({"is_open": "true", "database_url": "x"}, [], "database_url", "restart"),
        ({"is_open": "true", "window_ms": "soon"}, [], "window_ms", "expected int"),
        ({"is_open": "true", "window_ms": "101"}, [], "window_ms", "expected 0 to 100"),
        ({"is_open": "true"}, ["is_open"], "is_open", "one of the two"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    values: dict[str, str], reset: list[str], field: str, said: str
) -> None:
    """The error names the setting, and the other settings of the request do not change either."""
    _, live = begun()
    with pytest.raises(Invalid, match=said) as caught:
        live.update(values, reset)
    assert caught.value.field == field
    assert (live.settings, list(live.history)) == (Settings(), [])


def test_a_check_changes_nothing_and_a_part_may_refuse() -> None:
    """A dry run returns the changes; values that an applier refuses are not in force."""
    _, live = begun()
    assert [one.current for one in live.update({"is_open": "yes"}, dry_run=True)] == ["true"]
    assert not live.settings.is_open

    def refuse(settings: Settings) -> None:
        raise Invalid("no", field="is_open")

    live.appliers.append(refuse)
    with pytest.raises(Invalid):
        live.update({"is_open": "yes"})
    assert (live.settings.is_open, list(live.history)) == (False, [])


def test_a_file_that_is_read_again_beats_an_operator_only_where_it_says_something_new() -> None:
    """SIGHUP applies changes of the file; other values of operators stay. An invalid file changes nothing."""
    file, live = begun()
    live.update({"window_ms": "20", "is_open": "true"}, changed_by="ann")
    file.settings = Settings(window_ms=30, database_url="other")
    live.reload()
    assert row(live, "window_ms") == ("30", "file", None)
    assert row(live, "is_open") == ("true", "operator", "false")
    assert row(live, "database_url")[2] == "other"
    assert [one.changed_by for one in live.history] == ["ann", "ann", ""]
    file.settings = Settings(window_ms=1_000)
    live.reload()
    assert live.settings.window_ms == 30


ROLES = (NamesrvSettings, EnodeSettings, SnodeSettings)
TRUST = re.compile(r"address|_file|_files|_dir|_url|token|secret|key|tls|role_names|insecure|trusted")
"""Names of settings that decide which peers are trusted and called, and where keys are."""


@pytest.mark.parametrize("cls", ROLES)
def test_no_rpc_changes_which_peers_are_trusted(cls: type[ServiceSettings]) -> None:
    """An admin of messages cannot direct a process with its tokens to another server, or to other keys."""
    live = DynamicSettings(LoadedSettings(cls(), {}))
    names = [one.name for one in live.all() if TRUST.search(one.name)]
    assert {"listen_address", "cluster_token_file", "tls_cluster_ca_file"} <= {*names}
    assert [one.name for one in live.all() if one.dynamic and one.name in names] == []
    for name in names:
        for change in ({"values": {name: "evil:1"}}, {"values": {}, "reset": [name]}):
            with pytest.raises(Invalid, match="cannot be changed") as refused:
                live.update(**change)
            assert refused.value.field == name


@pytest.mark.parametrize("cls", [EnodeSettings, SnodeSettings])
def test_name_servers_change_in_the_file_with_a_reload(cls: type[EnodeSettings] | type[SnodeSettings]) -> None:
    """The refusal of the RPC names the remedy, and the remedy works."""
    settings = [cls(namesrv_address="a:1")]
    live = DynamicSettings(LoadedSettings(settings[0], {}), lambda: LoadedSettings(settings[0], {}))
    applied: list[str] = []
    live.appliers.append(lambda new: applied.append(new.namesrv_address))
    with pytest.raises(Invalid, match="SIGHUP"):
        live.update({"namesrv_address": "evil:1"}, changed_by="ann")
    settings[0] = cls(namesrv_address="b:1")
    live.reload()
    assert (applied, live.settings.namesrv_address) == (["b:1"], "b:1")
    assert [(one.name, one.current, one.changed_by) for one in live.history] == [("namesrv_address", "b:1", "")]
