"""The table of docs/operations/access.md with the rights that each method needs, read without the code of the snode."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs/operations/access.md"
_ROW = re.compile(r"\| `(?P<service>\w+)`: (?P<methods>[^|]+) \| (?P<rights>(?:[^|\\]|\\\|)+) \|")
OBSERVER = "`observer`"
_METHOD = re.compile(r"`(?P<name>\w+)`(?: \((?P<variant>\w+)\))?")
_RIGHT = re.compile(r"`(?P<grants>[A-Z|]+)` (?P<kind>topic|group)")
ALL_OTHERS = "all others"


class Right(NamedTuple):
    """A right on the topic or the group of a request; one of the grants is enough."""

    kind: str
    grants: frozenset[str]


class DocumentedRights(NamedTuple):
    """The rights for a method; None = only admins may call it, and no right = every user may."""

    rights: tuple[Right, ...] | None

    def allow(self, user: Mapping[str, object], names: Mapping[str, str]) -> bool:
        """Whether a user's entry of the access file allows a request with these names, by kind."""
        if user.get("admin"):
            return True
        return self.rights is not None and all(
            _granted(user, one.kind, names[one.kind]) & one.grants for one in self.rights
        )


def _granted(user: Mapping[str, object], kind: str, name: str) -> frozenset[str]:
    grants = user.get(f"{kind}s", {})
    assert isinstance(grants, dict)
    return frozenset(str(grants.get(name, "")).split("|"))


def read_page(methods: Iterable[str], text: str | None = None) -> dict[tuple[str, str], DocumentedRights]:
    """By method, "Service/Method", and variant of the request; empty = the only variant, or the usual one."""
    found: dict[tuple[str, str], DocumentedRights] = {}
    others: dict[str, DocumentedRights] = {}
    for row in _rows(text):
        if row["rights"] == OBSERVER:
            continue
        rights_text = row["rights"].replace("\\|", "|")
        rights = tuple(Right(one["kind"], frozenset(one["grants"].split("|"))) for one in _RIGHT.finditer(rights_text))
        without_rights = {"`admin`": None, "a valid signature": ()}
        assert bool(rights) is not (rights_text in without_rights), f"no known permissions: {rights_text}"
        documented = DocumentedRights(rights or without_rights[rights_text])
        if row["methods"] == ALL_OTHERS:
            others[row["service"]] = documented
        for method in _METHOD.finditer(row["methods"]):
            key = (f"{row['service']}/{method['name']}", method["variant"] or "")
            assert key not in found, f"{key} has two rows"
            found[key] = documented
    known = {method for method, _ in found}
    for name in methods:
        if name not in known and (rest := others.get(name.partition("/")[0])) is not None:
            found[name, ""] = rest
    return found


def read_observations(text: str | None = None) -> frozenset[str]:
    """The methods that an observer may call."""
    rows = [row for row in _rows(text) if row["rights"] == OBSERVER]
    return frozenset(f"{row['service']}/{one['name']}" for row in rows for one in _METHOD.finditer(row["methods"]))


def _rows(text: str | None) -> Iterable[re.Match[str]]:
    return filter(None, map(_ROW.fullmatch, (text or PAGE.read_text()).splitlines()))
