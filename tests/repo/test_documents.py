"""Documents are reachable from the README, link to existing targets, and use one word per thing."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import pytest

from tests.repo.adr_index import Malformed, index_of
from tests.repo.tree import ROOT, Tree

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(#[^)\s]*)?\)")
GUARANTEES = tuple(f"G{number}" for number in range(1, 20))
NOT_YET = "not yet"


def links(tree: Tree, name: str) -> Iterator[str]:
    """Where the relative links of a document lead, as paths from the root."""
    prose = re.sub(r"```.*?```", "", tree.text(name), flags=re.DOTALL)
    for target, _ in LINK.findall(prose):
        if target and not re.match(r"[a-z]+:", target):
            parts: list[str] = []
            for part in (PurePosixPath(name).parent / target).parts:
                if part == "..":
                    parts.pop()
                else:
                    parts.append(part)
            yield "/".join(parts)


def dangling(tree: Tree) -> list[str]:
    """Links to files and folders that are not there."""
    return [
        f"{name} -> {target}"
        for name in tree.named(".md")
        for target in links(tree, name)
        if target not in tree.names and not any(other.startswith(f"{target}/") for other in tree.names)
    ]


def unreachable(tree: Tree) -> list[str]:
    """Documents that no chain of links reaches from README.md."""
    seen: set[str] = set()
    waiting = ["README.md"]
    while waiting:
        name = waiting.pop()
        if name not in seen and name in tree.names:
            seen.add(name)
            if name.endswith(".md"):
                waiting.extend(links(tree, name))
    return [name for name in tree.named(".md") if name not in seen]


def refused_words(tree: Tree) -> dict[str, str]:
    """The words that the glossary forbids, each with the word to use instead."""
    found = {}
    for line in tree.lines("docs/glossary.md"):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| **") and len(cells) == 4 and cells[-1] not in ("", "-"):
            found.update({word.strip(): cells[0].strip("*") for word in cells[-1].split(",")})
    return found


def loose_words(tree: Tree) -> list[str]:
    """Forbidden words in protos, in the names of our modules, and in the texts of the modules."""
    refused = refused_words(tree)
    pattern = re.compile(rf"(?i)(?<![A-Za-z])({'|'.join(map(re.escape, refused))})(?:e?s)?(?![a-z])")
    return [
        f"{name}:{number}: {match[1]} (say {refused[match[1].lower()]})"
        for name in tree.named(".proto", below="protos/ortoo/")
        for number, line in enumerate(tree.lines(name), 1)
        if (match := pattern.search(re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", line)))
    ]


def guarantees(tree: Tree) -> dict[str, str]:
    """Each guarantee's last column in docs/guarantees.md: the tests that check it, or that there is none yet."""
    rows = [line.strip("|").split("|") for line in tree.lines("docs/guarantees.md") if re.match(r"\| G\d+ ", line)]
    return {cells[0].strip(): cells[-1].strip() for cells in rows}


def compatibilities(tree: Tree) -> dict[str, str]:
    """Each feature's last column in docs/compatibility.md: the test that checks it."""
    rows = [line.strip("|").split("|") for line in tree.lines("docs/compatibility.md") if re.search(r"\| yes \|", line)]
    return {cells[0].strip(): cells[-1].strip() for cells in rows}


def missing_tests(tree: Tree, table: dict[str, str] | None = None) -> list[str]:
    """Tests that a table names and that do not exist; by default the table of the guarantees."""
    missing = []
    for guarantee, cell in (guarantees(tree) if table is None else table).items():
        if "`tests/" not in cell and not cell.startswith(NOT_YET):
            missing.append(f"{guarantee}: neither a test nor '{NOT_YET}'")
        missing += [f"{guarantee}: {one}" for one in absent(tree, cell)]
    return missing


def absent(tree: Tree, text: str) -> list[str]:
    """Tests that a text names and that do not exist."""
    return [
        f"{name}::{function}"
        for name, function in re.findall(r"`(tests/[\w/.]+)::(\w+)`", text)
        if name not in tree.names or not re.search(rf"def {function}\(", tree.text(name))
    ]


def test_every_link_leads_somewhere(tree: Tree) -> None:
    """A relative link names a file or folder of this repository."""
    assert dangling(tree) == []


def test_every_document_is_reached_from_the_readme(tree: Tree) -> None:
    """A document without a link to it is not maintained."""
    assert unreachable(tree) == []


def test_the_rules_on_links_fire(tmp_path: Path) -> None:
    """A dangling link and an orphan are named; links inside code blocks and to other sites are ignored."""
    planted = {
        "README.md": "[a](docs/a.md) [gone](docs/gone.md) [site](https://example.org) \n```\n[x](y.md)\n```\n",
        "docs/a.md": "[up](../README.md#top) [folder](../docs)",
        "docs/orphan.md": "",
    }
    small = Tree.planted(tmp_path, planted)
    assert dangling(small) == ["README.md -> docs/gone.md"]
    assert unreachable(small) == ["docs/orphan.md"]


def test_the_index_of_decisions_is_up_to_date() -> None:
    """docs/adr/README.md is the output of `make docs`."""
    folder = ROOT / "docs/adr"
    assert (folder / "README.md").read_text(encoding="utf-8") == index_of(folder)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("0002-second.md", "# ADR 2: Second\n", "0001-a-slug"),
        ("0001-first.md", "First\n", "first line"),
        ("0001-first.md", "# ADR 1: First\n\nStatus: accepted\n", "## Context"),
    ],
)
def test_a_malformed_decision_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    """A gap in the numbers, a missing title and a missing section are named."""
    (tmp_path / name).write_text(text)
    with pytest.raises(Malformed, match=re.escape(said)):
        index_of(tmp_path)


def request_paths(tree: Tree) -> dict[str, list[tuple[str, str]]]:
    """The request paths of ARCHITECTURE.md: heading to the (definition, file) of each step."""
    chapter = tree.text("ARCHITECTURE.md").partition("## Four request paths")[2].partition("\n## ")[0]
    found = {}
    for path in chapter.split("\n### ")[1:]:
        found[path.splitlines()[0]] = re.findall(r"^\d+\. \[`([\w.]+)`\]\(([^)]+)\)", path, re.MULTILINE)
    return found


def lost_steps(tree: Tree) -> list[str]:
    """Steps of the request paths whose file is gone or does not define what the step names."""
    lost = []
    for steps in request_paths(tree).values():
        for name, file in steps:
            owner, _, member = name.partition(".")
            text = tree.text(file) if file in tree.names else ""
            wanted = [rf"^(?:class|def|async def) {owner}\b"] + [rf"^ +(?:async )?def {member}\b"] * bool(member)
            if not all(re.search(pattern, text, re.MULTILINE) for pattern in wanted):
                lost.append(f"{name} in {file}")
    return lost


def test_four_request_paths_lead_through_the_code(tree: Tree) -> None:
    """ARCHITECTURE.md traces send, push, pop and RocketMQ's receive by names that the files define."""
    assert [name.partition(":")[0] for name in request_paths(tree)] == ["Send", "Push", "Pop", "Receive"]
    assert all(1 < len(steps) <= 14 for steps in request_paths(tree).values())
    assert lost_steps(tree) == []


PLACE = re.compile(r"`((?:protos|libs|services|docs|tests)/[^`]*)`")


def lost_places(tree: Tree) -> list[str]:
    """Places in CONTRIBUTING's table that do not exist; `…` stands for a package's folder, `{a,b}` for both."""
    lost: list[str] = []
    for place in PLACE.findall(
        tree.text("CONTRIBUTING.md").partition("## Files of each kind of change")[2].partition("\n## ")[0]
    ):
        whole = re.sub(r"^(\w+/(\w+))/…/", r"\1/src/ortoo/\2/", place)
        head, brace, rest = whole.partition("{")
        several, _, tail = rest.partition("}")
        named = [head + part + tail for part in several.split(",")] if brace else [whole]
        lost += [one for one in named if not any(fnmatch(name, one + "*" * one.endswith("/")) for name in tree.names)]
    return lost


def test_the_places_of_changes_are_there(tree: Tree) -> None:
    """Every file and folder that the table names exists."""
    assert lost_places(tree) == []


def test_a_lost_place_is_found(tmp_path: Path) -> None:
    """A file of several, and a folder."""
    table = "## Files of each kind of change\n"
    table += "`libs/a/…/{b,c}.py` `libs/a/…/d/` `protos/e*.proto` `f.py`\n## Tests\n`libs/gone.py`"
    names = {"CONTRIBUTING.md": table, "libs/a/src/ortoo/a/b.py": "", "protos/e1.proto": ""}
    assert lost_places(Tree.planted(tmp_path, names)) == ["libs/a/src/ortoo/a/c.py", "libs/a/src/ortoo/a/d/"]


def test_a_lost_step_is_found(tmp_path: Path) -> None:
    """A step whose file is gone, and one whose definition is, are found."""
    text = "## Four request paths\n\n### Send: x\n\n1. [`A.b`](a.py): x\n2. [`A.c`](a.py)\n3. [`d`](b.py)\n"
    planted = {"ARCHITECTURE.md": text, "a.py": "class A:\n    def b(self): ...\n"}
    assert lost_steps(Tree.planted(tmp_path, planted)) == ["A.c in a.py", "d in b.py"]


def test_protos_use_one_word_per_thing(tree: Tree) -> None:
    """Our protos use no synonym that the glossary forbids."""
    assert loose_words(tree) == []


def test_the_rule_on_words_fires(tmp_path: Path) -> None:
    """Forbidden words are found in comments and inside compound names, in both cases; parts of other words are not."""
    planted = {
        "docs/glossary.md": "| **queue** | of order | partition | partition, shard |\n| **topic** | a name | - | - |\n",
        "protos/ortoo/v1/a.proto": "message PartitionState {\n  // Shards.\n  int32 shard_id = 1;\n  // sharding\n}\n",
    }
    name = "protos/ortoo/v1/a.proto"
    assert loose_words(Tree.planted(tmp_path, planted)) == [
        f"{name}:1: Partition (say queue)",
        f"{name}:2: Shard (say queue)",
        f"{name}:3: shard (say queue)",
    ]


def test_every_guarantee_names_its_test_or_says_not_yet(tree: Tree) -> None:
    """G1 to G19 are all in docs/guarantees.md, and every test named there exists."""
    assert tuple(guarantees(tree)) == GUARANTEES
    assert missing_tests(tree) == []


def test_a_test_that_a_document_names_is_there(tree: Tree) -> None:
    """A test that a document names exists, so that a deleted test is noticed."""
    pages = [name for name in tree.names if name.endswith(".md")]
    assert {name: gone for name in pages if (gone := absent(tree, tree.text(name)))} == {}


def test_every_feature_of_rocketmqs_clients_names_its_test(tree: Tree) -> None:
    """Features that docs/compatibility.md calls working have their named tests, for both clients."""
    assert len(compatibilities(tree)) > 20
    assert missing_tests(tree, compatibilities(tree)) == []


def test_the_rule_on_guarantees_fires(tmp_path: Path) -> None:
    """A test that does not exist and an empty cell are named."""
    planted = {
        "docs/guarantees.md": "| G1 | x | `tests/contract/test_a.py::test_x` |\n| G2 | x | |\n| G3 | x | not yet |\n"
        "| G4 | x | `tests/contract/test_a.py::test_y` |\n",
        "tests/contract/test_a.py": "async def test_x(): ...\n",
    }
    assert missing_tests(Tree.planted(tmp_path, planted)) == [
        "G2: neither a test nor 'not yet'",
        "G4: tests/contract/test_a.py::test_y",
    ]


def test_the_readme_says_what_is_true_and_stays_out_of_the_tutorial() -> None:
    """Nothing with a page is "not yet" there, and its program creates no topic that the tutorial creates."""
    readme, tutorial = ((ROOT / page).read_text() for page in ("README.md", "docs/tutorial.md"))
    assert "not yet" not in readme
    made = set(re.findall(r'ensure_topic\("([^"]+)"', readme))
    created = set(re.findall(r"ortoo topic create (\S+)", tutorial))
    assert made
    assert created
    assert not made & created
