"""The alteration of a topic or a group: a form with its settings, a preview of the changes, and then exactly these."""

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ortoo.common.errors import Conflict, Invalid
from ortoo.common.machine.printable import printable_line
from ortoo.console.web.forms import whole_number
from ortoo.console.web.rendering import path_segment
from ortoo.console.web.visit import Visit

Value = str | int | bool


class Kind(enum.Enum):
    """The kind of values that a setting has."""

    NUMBER = "number"
    TEXT = "text"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class AlterableSetting:
    """A setting of a topic or a group."""

    name: str
    """As in the call that changes it."""
    label: str
    """With the unit."""
    now: Value
    kind: Kind
    choices: tuple[str, ...] = ()
    maximum: int = (1 << 32) - 1

    @property
    def shown(self) -> str:
        """The present value as the form shows it."""
        return _text(self.now)

    @property
    def options(self) -> tuple[str, ...]:
        """The values of a choice; empty for a free one."""
        return ("yes", "no") if self.kind is Kind.SWITCH else self.choices

    def parse(self, text: str) -> Value:
        """The value of a field. Errors: Invalid."""
        if self.options and text not in self.options:
            raise Invalid(f"{text[:40]!r}; expected {', '.join(self.options)}", field=self.name)
        if self.kind is Kind.SWITCH:
            return text == "yes"
        return whole_number(text, self.name, maximum=self.maximum) if self.kind is Kind.NUMBER else text


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that gets another value."""

    setting: AlterableSetting
    value: Value
    warning: str = ""
    """The reason why the change is dangerous; the name has to be typed then."""

    @property
    def shown(self) -> str:
        """The next value as the preview shows it."""
        return _text(self.value)

    def __str__(self) -> str:
        return f"{self.setting.name}: {self.setting.shown} -> {self.shown}"


def _text(value: Value) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


WarningOf = Callable[[AlterableSetting, Value], str]
"""The reason why a change of a setting to a value is dangerous; empty if it is not."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """The pages with which topics or groups are altered."""

    kind: str
    """Either topic or group."""
    settings_of: Callable[[Visit], Awaitable[Sequence[AlterableSetting]]]
    """Returns the settings that can be changed now."""
    warning_of: WarningOf
    words_of: Callable[[Change], tuple[str, ...]]
    """Returns the options of the command for a change."""

    async def show(self, visit: Visit) -> Response:
        """The form, and the preview of the changes that the address names."""
        name, kind, settings = visit.name(), self.kind, await self.settings_of(visit)
        changes: list[Change] = []
        error = ""
        try:
            changes = _read_changes(settings, visit.request.query_params, self.warning_of)
        except Invalid as invalid:
            error = str(invalid)
        options = [word for one in changes for word in self.words_of(one)]
        return visit.page(
            "alter.html",
            title=f"Change {kind} {printable_line(name)}",
            commands=((kind, "update", name, *options),) if options else ((kind, "describe", name),),
            kind=kind,
            name=name,
            base=visit.link(f"/{kind}s/{path_segment(name)}"),
            settings=settings,
            values=visit.request.query_params,
            changes=changes,
            preview=_preview_text(changes),
            error=error,
        )

    async def previewed_values(self, visit: Visit) -> dict[str, Any]:
        """The values that a form applies, by name of the setting: those of the preview, and confirmed if needed.

        Errors: Conflict if the settings have changed since the preview, Invalid.
        """
        changes = _read_changes(await self.settings_of(visit), visit.form, self.warning_of)
        if not changes or _preview_text(changes) != "\n".join(visit.field("preview").splitlines()):
            raise Conflict(f"the {self.kind} has changed since the preview; open the preview again", field="preview")
        if any(one.warning for one in changes):
            visit.check_confirmed(visit.name(), f"{self.kind} to change it")
        return {one.setting.name: one.value for one in changes}


def _read_changes(
    settings: Sequence[AlterableSetting], fields: Mapping[str, str], warning_of: WarningOf
) -> list[Change]:
    """The changes in the fields of a form or an address. An absent or empty field changes nothing.

    Errors: Invalid, naming the field.
    """
    values = [(one, one.parse(text)) for one in settings if (text := fields.get(one.name, "").strip())]
    return [Change(one, value, warning_of(one, value)) for one, value in values if value != one.now]


def _preview_text(changes: Sequence[Change]) -> str:
    """The changes as text, one in each line."""
    return "\n".join(map(str, changes))
