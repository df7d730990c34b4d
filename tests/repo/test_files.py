"""Files are small, named by their subject, and free of foreign content."""

import fnmatch
import re
import subprocess
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, Tree

LINES_MAX = 500
SOURCES = (".py", ".proto", ".toml", ".yaml", ".yml", ".sh", ".md", "Makefile")
JUNK_NAMES = frozenset({"util", "utils", "helper", "helpers", "misc", "manager", "base", "common_utils", "stuff"})
ROOT_ENTRIES_MAX = 18
"""Files whose names begin with a dot belong to tools and are not counted."""

# Words that must not occur, each with the reason. Written so that they do not match themselves.
FOREIGN_WORDS = {
    r"/(?:work|home|Users|root)/": "a path of one machine",
    r"(?:pypi|npmjs|crates|pythonhosted)[.](?:org|io|com)": "a package registry's address: names and pins are enough",
    r"(?i)\bissues? ?#?\d": "an issue's number: state the reason itself",
    r"[.]isdigit[(]": "it accepts ², which int() refuses: use isdecimal()",
    r"\b(?:TO[D]O|FIX[M]E|X[X]X)\b": "a mark for later: do it, or list it in CHANGELOG as missing",
}


def too_long(tree: Tree) -> list[str]:
    """Files that are too long to read at once."""
    return [f"{name}: {n} lines" for name in tree.named(*SOURCES) if (n := len(tree.lines(name))) > LINES_MAX]


def junk_named(tree: Tree) -> list[str]:
    """Modules and folders whose name has no meaning."""
    return [name for name in tree.named(".py") if JUNK_NAMES & set(Path(name).with_suffix("").parts)]


def foreign_words(tree: Tree) -> list[str]:
    """Words that belong to other things than this project."""
    return [
        f"{name}:{number}: {why}"
        for name in tree.named(*SOURCES, ".txt", ".json", ".svg", "run")
        for number, line in enumerate(tree.lines(name), 1)
        for pattern, why in FOREIGN_WORDS.items()
        if re.search(pattern, line)
    ]


def namespace_closed(tree: Tree) -> list[str]:
    """Files that would close the namespace package `ortoo`, so that only one distribution could be imported."""
    return [name for name in tree.names if re.search(r"(?:^|/)src/ortoo/__init__\.py$", name)]


def unopened(tree: Tree) -> list[str]:
    """Folders of modules without an `__init__.py`: they would be namespaces too, split over several places."""
    folders = {name.rsplit("/", 1)[0] for name in tree.named(".py", generated=True) if "/src/ortoo/" in name}
    return sorted(folder for folder in folders if f"{folder}/__init__.py" not in tree.names)


def committed_though_ignored(root: Path) -> list[str]:
    """Files that git tracks although .gitignore names them."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--ignored", "--exclude-standard"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def test_no_file_is_too_long_to_read_in_one_sitting(tree: Tree) -> None:
    """Outside generated code a file has at most 500 lines."""
    assert too_long(tree) == []


def test_the_length_rule_fires(tmp_path: Path) -> None:
    """A file of 501 lines is found, one of 500 and a generated one are not."""
    long = "x = 1\n" * (LINES_MAX + 1)
    planted = {"a.py": long, "b.py": "x = 1\n" * LINES_MAX, "libs/wire/src/ortoo/v1/c_pb2.py": long}
    assert too_long(Tree.planted(tmp_path, planted)) == [f"a.py: {LINES_MAX + 1} lines"]


def test_every_module_is_named_by_what_it_is_about(tree: Tree) -> None:
    """No module is a collection of unrelated code."""
    assert junk_named(tree) == []


def test_the_naming_rule_fires(tmp_path: Path) -> None:
    """Such names are found for modules and for folders."""
    planted = {"utils.py": "", "helpers/frame.py": "", "base_offset.py": ""}
    assert junk_named(Tree.planted(tmp_path, planted)) == ["helpers/frame.py", "utils.py"]


def test_files_speak_of_this_project_alone(tree: Tree) -> None:
    """No machine paths, registry addresses, issue numbers or marks for later."""
    assert foreign_words(tree) == []


@pytest.mark.parametrize("line", ["see /w|ork/x", "from pyp|i.org", "as issue |12 says", "# TO|DO: x", "x.is|digit()"])
def test_the_rule_on_foreign_words_fires(tmp_path: Path, line: str) -> None:
    """Each kind of foreign word is found with its file and line."""
    found = foreign_words(Tree.planted(tmp_path, {"a.py": f"\n{line.replace('|', '')}\n"}))
    assert [f.rsplit(":", 1)[0].split(": ")[0] for f in found] == ["a.py:2"]


def test_the_namespace_stays_open(tree: Tree) -> None:
    """`ortoo` itself has no `__init__.py`, because eight distributions share it."""
    assert namespace_closed(tree) == []


def test_the_namespace_rule_fires(tmp_path: Path) -> None:
    """Such a file is found."""
    planted = {"libs/wire/src/ortoo/__init__.py": "", "libs/wire/src/ortoo/v1/__init__.py": ""}
    assert namespace_closed(Tree.planted(tmp_path, planted)) == ["libs/wire/src/ortoo/__init__.py"]


def test_every_package_below_the_namespace_is_a_package(tree: Tree) -> None:
    """Only `ortoo` itself is shared by distributions."""
    assert unopened(tree) == []


def test_the_package_rule_fires(tmp_path: Path) -> None:
    """A folder of modules without `__init__.py` is found."""
    planted = {"libs/a/src/ortoo/a/__init__.py": "", "libs/a/src/ortoo/a/b/c.py": ""}
    assert unopened(Tree.planted(tmp_path, planted)) == ["libs/a/src/ortoo/a/b"]


def test_nothing_ignored_is_committed() -> None:
    """No file in .gitignore is in the repository."""
    assert committed_though_ignored(ROOT) == []


def test_the_rule_on_ignored_files_fires(tmp_path: Path) -> None:
    """A file that was added by force is found."""
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "a.log").write_text("")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), "add", "-f", "a.log"], check=True)
    assert committed_though_ignored(tmp_path) == ["a.log"]


def test_the_root_is_no_notice_board(tree: Tree) -> None:
    """The first screen of the repository has at most 18 entries that people read."""
    entries = {name.split("/")[0] for name in tree.names if not name.startswith(".")}
    assert len(entries) <= ROOT_ENTRIES_MAX, sorted(entries)


def test_generated_code_is_marked_and_kept_apart(tree: Tree) -> None:
    """Only libs/wire holds generated modules."""
    generated = list(tree.named("_pb2.py", "_pb2_grpc.py", generated=True))
    assert generated
    assert [name for name in generated if not fnmatch.fnmatch(name, "libs/wire/src/*")] == []
