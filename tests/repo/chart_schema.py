"""Writes each role's settings into the schema of the chart's values, from their classes: `make manifests`.

A number may be given as a number or, as by `--set-string`, as text. The role itself checks the range of text.
"""

import dataclasses
import enum
import json
import sys
from pathlib import Path
from typing import Any

from ortoo.common.process.settings import NumberRange, former_names, ranges, removed_names
from ortoo.enode.settings import EnodeSettings
from tests.repo.settings_page import ROLES, described

INTEGER = "^-?[0-9][0-9_]*$"
NUMBER = r"^-?[0-9][0-9_]*(\.[0-9]+)?([eE][-+]?[0-9]+)?$"


def setting_schemas(settings: Any, prefix: str = "") -> dict[str, dict[str, Any]]:
    """Dotted name to schema of every setting that can be given."""
    allowed = ranges(type(settings))
    texts = {name: text for cls in reversed(type(settings).__mro__[:-1]) for name, text in described(cls).items()}
    found: dict[str, dict[str, Any]] = {}
    for field in dataclasses.fields(settings):
        name, value = prefix + field.name, getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            found |= setting_schemas(value, name + ".")
        elif name not in EnodeSettings.HIDDEN:
            found[name] = {"description": texts[field.name], **kind_of(value, allowed.get(field.name))}
    for former, name in former_names(type(settings)).items():
        found[former] = {**found[name], "description": f"The former name of {name}, accepted for one version."}
    for removed in removed_names(type(settings)):
        found[removed] = {"description": "Removed. It has no effect, and is accepted for one version."}
    return found


def kind_of(value: Any, allowed: NumberRange | None) -> dict[str, Any]:
    """The allowed values of a setting, derived from its default."""
    if isinstance(value, bool):
        return {"enum": [True, False, "true", "false"]}
    if isinstance(value, enum.Enum):
        return {"enum": [one.value for one in type(value)]}
    if isinstance(value, int | float):
        whole = isinstance(value, int)
        limits = {"minimum": allowed.minimum, "maximum": allowed.maximum} if allowed else {}
        return {
            "type": ["integer" if whole else "number", "string"],
            **limits,
            "pattern": INTEGER if whole else NUMBER,
        }
    return {"type": "string"}


def filled(schema: dict[str, Any]) -> dict[str, Any]:
    """The chart's schema with each role's settings, from the code."""
    for role, (_, cls) in ROLES.items():
        schema["properties"][role]["properties"]["settings"] = {
            "description": f"Settings of the {role}, as printed by `ortoo-{role} -p`; nested names have a dot.",
            "type": "object",
            "properties": setting_schemas(cls()),
            "additionalProperties": False,
        }
    return schema


def text_of(schema: dict[str, Any]) -> str:
    """The schema as text of its file."""
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(text_of(filled(json.loads(file.read_text(encoding="utf-8")))), encoding="utf-8")
