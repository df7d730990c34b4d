"""The forms of reports and the list of reviewers have the shape that a platform reads."""

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.repo.tree import Tree

FORMS = ".github/ISSUE_TEMPLATE/"
OWNERS = ".github/CODEOWNERS"
TYPES = frozenset({"markdown", "input", "textarea", "dropdown", "checkboxes"})


def wrong_forms(tree: Tree) -> list[str]:
    """Forms without a name, and fields without an id of their own, a label or options."""
    found = []
    for name in tree.named(".yml", below=FORMS):
        if name.endswith("/config.yml"):
            continue
        form: dict[str, Any] = yaml.safe_load(tree.text(name))
        found += [f"{name}: no {key}" for key in ("name", "description", "body") if not form.get(key)]
        fields = [field for field in form.get("body", ()) if field.get("type") != "markdown"]
        for number, field in enumerate(fields, 1):
            if field.get("type") not in TYPES:
                found.append(f"{name}: field {number} has no known type")
            if not field.get("attributes", {}).get("label"):
                found.append(f"{name}: field {number} has no label")
            if field.get("type") == "dropdown" and not field["attributes"].get("options"):
                found.append(f"{name}: field {number} has no options")
        ids = [field.get("id") for field in fields]
        if None in ids or len(set(ids)) < len(ids):
            found.append(f"{name}: each field needs an id of its own")
    return found


def ownerless(tree: Tree) -> list[str]:
    """Lines of the list of reviewers that match no file or name no reviewer, and a missing line for all files."""
    lines = [line.split() for line in tree.lines(OWNERS) if line and not line.startswith("#")]
    found = [] if lines and lines[0][0] == "*" else ["no first line for all files"]
    for pattern, *owners in lines:
        path = f"{pattern.strip('/')}/*" if pattern.endswith("/") else pattern.strip("/")
        if not any(fnmatch(name, path) for name in tree.names):
            found.append(f"{pattern} matches no file")
        if not owners or not all(re.fullmatch(r"@[\w-]+(?:/[\w-]+)?", owner) for owner in owners):
            found.append(f"{pattern} names no reviewer")
    return found


def test_forms_of_reports_are_valid(tree: Tree) -> None:
    """Each form has a name and fields with ids and labels."""
    assert wrong_forms(tree) == []
    assert sum(name.endswith(".yml") for name in tree.named(".yml", below=FORMS)) == 3


def test_each_line_of_the_reviewers_matches_files(tree: Tree) -> None:
    """A renamed folder does not lose its reviewers."""
    assert ownerless(tree) == []


def test_the_rules_fire(tmp_path: Path) -> None:
    """A form without a label, two fields with one id, and a line for a folder that does not exist are found."""
    field = "  - type: {}\n    id: a\n    attributes: {{{}}}\n"
    form = "name: x\ndescription: y\nbody:\n" + field.format("dropdown", "label: l") + field.format("input", "")
    tree = Tree.planted(tmp_path, {f"{FORMS}a.yml": form, OWNERS: "/old/ @a\n* nobody\n"})
    assert [one.removeprefix(f"{FORMS}a.yml: ") for one in wrong_forms(tree)] == [
        "field 1 has no options",
        "field 2 has no label",
        "each field needs an id of its own",
    ]
    assert ownerless(tree) == ["no first line for all files", "/old/ matches no file", "* names no reviewer"]
