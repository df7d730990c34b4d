"""The settings of a running process: their values, their origins, and changes without a restart.

A value that an operator sets is in force until the next start. It survives a SIGHUP, unless the file or the environment
has a new value of the same setting. The next start takes the file's value, and a finding reports the difference.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from ortoo.common.cluster.service_settings import ServiceSettings
from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.errors.findings import Finding
from ortoo.common.logs import log_events
from ortoo.common.logs import logger as logs
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import Clock, SystemClock
from ortoo.common.process.settings import (
    LoadedSettings,
    Setting,
    SettingChange,
    check_ranges,
    flatten,
    format_value,
    with_values,
)

HISTORY_MAX = 200
OPERATOR = "operator"
"""The origin of values that an operator has set in the running process."""
S = TypeVar("S", bound=ServiceSettings)
_log = get_logger("settings")


class DynamicSettings(Generic[S]):
    """The settings of one process, some of which can be changed while it runs; `appliers` apply the changes."""

    def __init__(
        self,
        loaded: LoadedSettings[S],
        load: Callable[[], LoadedSettings[S]] | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        """Begin with the `loaded` settings; `load` reads them again."""
        self.settings = loaded.settings
        """The settings in force."""
        self.appliers: list[Callable[[S], object]] = []
        """Called with changed settings, in order. Appliers that may refuse them with Invalid come before the others."""
        self.history: deque[SettingChange] = deque(maxlen=HISTORY_MAX)
        self._loaded = loaded
        self._load = load or (lambda: loaded)
        self._overrides: dict[str, str] = {}
        """The values that operators have set, as text."""
        self._clock = clock or SystemClock()

    def all(self) -> list[Setting]:
        """All settings that an operator can set, with their values and origins."""
        found, next_start = flatten(self.settings), flatten(self._loaded.settings)
        return [
            Setting(
                name,
                format_value(value),
                OPERATOR if name in self._overrides else self._loaded.origins.get(name, "default"),
                name in self.settings.LIVE,
                None if next_start[name] == value else format_value(next_start[name]),
            )
            for name, value in found.items()
            if name not in self.settings.HIDDEN
        ]

    def update(
        self, values: Mapping[str, str], reset: Sequence[str] = (), *, changed_by: str = "", dry_run: bool = False
    ) -> list[SettingChange]:
        """Set settings until the next start. The settings in `reset` get the values of file and environment again.

        Returns the changes, also with `dry_run`. If it raises Invalid, which names the setting, no setting changes.
        """
        for name in (*values, *reset):
            if name not in flatten(self.settings):
                with_values(
                    self.settings, {name: ""}, environ_prefix=self.settings.ENVIRON_PREFIX
                )  # Invalid if unknown
            if name in self.settings.RELOADED:
                raise Invalid(
                    "cannot be changed by RPC, because it decides which processes get this process's tokens. Change it "
                    "in the file and send SIGHUP, or restart the process",
                    field=name,
                )
            if name not in self.settings.LIVE:
                raise Invalid(
                    "cannot be changed in a running process; change it in the file or environment and restart. These "
                    f"can be changed: {', '.join(self.settings.LIVE)}",
                    field=name,
                )
            if name in values and name in reset:
                raise Invalid("both set and reset; give one of the two", field=name)
        chosen = {name: text for name, text in (self._overrides | dict(values)).items() if name not in reset}
        changes = self._apply(self._loaded, chosen, changed_by, dry_run=dry_run)
        if changes and not dry_run:
            _log.emit(log_events.SETTINGS_CHANGED, by=changed_by, **_log_fields(changes))
        return changes

    def reload(self) -> None:
        """Read the settings again, apply the changes of live settings, and log other changes.

        Invalid settings change nothing.
        """
        try:
            loaded = self._load()
            before, found = flatten(self._loaded.settings), flatten(loaded.settings)
            chosen = {name: text for name, text in self._overrides.items() if found[name] == before[name]}
            changes = self._apply(loaded, chosen)
        except OrtooError as error:
            _log.emit(log_events.SETTINGS_RELOAD_REJECTED, reason=str(error))
            return
        waiting = [one.name for one in self.all() if not one.dynamic and one.at_next_start is not None]
        _log.emit(log_events.SETTINGS_RELOADED, at_next_start=waiting, **_log_fields(changes))

    def findings(self) -> Iterator[Finding]:
        """A finding if an operator has set settings to values that the next start of the process will replace."""
        if kept := [one for one in self.all() if one.origin == OPERATOR and one.at_next_start is not None]:
            role = self.settings.ENVIRON_PREFIX.split("_")[1].lower()
            yield Finding(
                "unsaved settings",
                "; ".join(f"{one.name} was set to {one.value or 'nothing'} in the running process" for one in kept),
                f"the next start uses {', '.join(f'{one.name} = {one.at_next_start}' for one in kept)}",
                "set it in the settings file, the environment or the chart's values, or reset it: `ortoo "
                f"settings set {role} {' '.join(f'--reset {one.name}' for one in kept)}`",
                critical=False,
            )

    def _apply(
        self, loaded: LoadedSettings[S], chosen: dict[str, str], changed_by: str = "", *, dry_run: bool = False
    ) -> list[SettingChange]:
        """Apply the live settings of `loaded`, overridden by `chosen`. Errors: Invalid."""
        wanted = with_values(loaded.settings, chosen)
        check_ranges(wanted)
        wanted.check()
        was, found = flatten(self.settings), flatten(wanted)
        names = [name for name in (*self.settings.LIVE, *self.settings.RELOADED) if found[name] != was[name]]
        now_ms = self._clock.now_ms()
        changes = [
            SettingChange(
                now_ms,
                name,
                format_value(was[name]),
                format_value(found[name]),
                OPERATOR if name in chosen else loaded.origins.get(name, "default"),
                changed_by,
            )
            for name in names
        ]
        if dry_run:
            return changes
        settings: S = with_values(self.settings, {name: found[name] for name in names})
        for apply in self.appliers:
            apply(settings)
        if "log_level" in names:
            logs.configure(level=settings.log_level)
        self.settings, self._loaded, self._overrides = settings, loaded, chosen
        self.history.extend(changes)
        return changes


def _log_fields(changes: Sequence[SettingChange]) -> dict[str, Any]:
    """The changes as fields of a log line."""
    return {
        "changed": [one.name for one in changes],
        "was": {one.name: one.previous for one in changes},
        "now": {one.name: one.current for one in changes},
        "origins": {one.name: one.origin for one in changes},
    }
