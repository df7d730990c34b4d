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
from ortoo.common.process.settings import Loaded, Setting, SettingChange, changed, check_ranges, flat, text_of

HISTORY_MAX = 200
OPERATOR = "operator"
"""The origin of values that an operator has set in the running process."""
S = TypeVar("S", bound=ServiceSettings)
_log = get_logger("settings")


class LiveSettings(Generic[S]):
    """The settings of one process; `appliers` apply their changes."""

    def __init__(
        self, loaded: Loaded[S], load: Callable[[], Loaded[S]] | None = None, *, clock: Clock | None = None
    ) -> None:
        """Begin with the `loaded` settings; `load` reads them again."""
        self.settings = loaded.settings
        """The settings in force."""
        self.appliers: list[Callable[[S], object]] = []
        """Called with changed settings, in order. Appliers that may refuse them with Invalid come before the others."""
        self.history: deque[SettingChange] = deque(maxlen=HISTORY_MAX)
        self._loaded = loaded
        self._load = load or (lambda: loaded)
        self._chosen: dict[str, str] = {}
        """The values that operators have set, as text."""
        self._clock = clock or SystemClock()

    def all(self) -> list[Setting]:
        """All settings that can be given."""
        found, next_start = flat(self.settings), flat(self._loaded.settings)
        return [
            Setting(
                name,
                text_of(value),
                OPERATOR if name in self._chosen else self._loaded.origins.get(name, "default"),
                name in self.settings.LIVE,
                None if next_start[name] == value else text_of(next_start[name]),
            )
            for name, value in found.items()
            if name not in self.settings.HIDDEN
        ]

    def update(
        self, values: Mapping[str, str], reset: Sequence[str] = (), *, by: str = "", check_only: bool = False
    ) -> list[SettingChange]:
        """Set values until the next start; the settings in `reset` go back to the file and the environment.

        Returns the changes, also with `check_only`. Errors: Invalid, naming the setting, and no setting changes.
        """
        for name in (*values, *reset):
            if name not in flat(self.settings):
                changed(self.settings, {name: ""}, environ_prefix=self.settings.ENVIRON_PREFIX)  # Invalid if unknown
            if name not in self.settings.LIVE:
                raise Invalid(
                    "cannot be changed in a running process; change it in the file or environment and restart. These "
                    f"can be changed: {', '.join(self.settings.LIVE)}",
                    field=name,
                )
            if name in values and name in reset:
                raise Invalid("both set and reset; give one of the two", field=name)
        chosen = {name: text for name, text in (self._chosen | dict(values)).items() if name not in reset}
        changes = self._take(self._loaded, chosen, by, check_only=check_only)
        if changes and not check_only:
            _log.emit(log_events.SETTINGS_CHANGED, by=by, **_told(changes))
        return changes

    def reread(self) -> None:
        """Read the settings again, apply the live ones and log the others. Invalid settings change nothing."""
        try:
            loaded = self._load()
            before, found = flat(self._loaded.settings), flat(loaded.settings)
            chosen = {name: text for name, text in self._chosen.items() if found[name] == before[name]}
            changes = self._take(loaded, chosen)
        except OrtooError as error:
            _log.emit(log_events.SETTINGS_RELOAD_REJECTED, reason=str(error))
            return
        waiting = [one.name for one in self.all() if not one.live and one.at_next_start is not None]
        _log.emit(log_events.SETTINGS_RELOADED, at_next_start=waiting, **_told(changes))

    def findings(self) -> Iterator[Finding]:
        """The settings whose values an operator has set and the next start will replace."""
        if kept := [one for one in self.all() if one.origin == OPERATOR and one.at_next_start is not None]:
            yield Finding(
                "unsaved settings",
                "; ".join(f"{one.name} was set to {one.value or 'nothing'} in the running process" for one in kept),
                f"the next start uses {', '.join(f'{one.name} = {one.at_next_start}' for one in kept)}",
                "set it in the settings file, the environment or the chart's values, or reset it: `ortoo "
                f"settings set ROLE {' '.join(f'--reset {one.name}' for one in kept)}`",
                serious=False,
            )

    def _take(
        self, loaded: Loaded[S], chosen: dict[str, str], by: str = "", *, check_only: bool = False
    ) -> list[SettingChange]:
        """Apply the live settings of `loaded`, overridden by `chosen`. Errors: Invalid."""
        wanted = changed(loaded.settings, chosen)
        check_ranges(wanted)
        wanted.check()
        was, found = flat(self.settings), flat(wanted)
        names = [name for name in self.settings.LIVE if found[name] != was[name]]
        now_ms = self._clock.now_ms()
        changes = [
            SettingChange(
                now_ms,
                name,
                text_of(was[name]),
                text_of(found[name]),
                OPERATOR if name in chosen else loaded.origins.get(name, "default"),
                by,
            )
            for name in names
        ]
        if check_only:
            return changes
        settings: S = changed(self.settings, {name: found[name] for name in names})
        for apply in self.appliers:
            apply(settings)
        if "log_level" in names:
            logs.configure(level=settings.log_level)
        self.settings, self._loaded, self._chosen = settings, loaded, chosen
        self.history.extend(changes)
        return changes


def _told(changes: Sequence[SettingChange]) -> dict[str, Any]:
    """The changes as fields of a log line."""
    return {
        "changed": [one.name for one in changes],
        "was": {one.name: one.was for one in changes},
        "now": {one.name: one.now for one in changes},
        "origins": {one.name: one.origin for one in changes},
    }
