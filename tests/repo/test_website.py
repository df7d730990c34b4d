"""The documentation site, which `make site` builds: its navigation, lists, and pages of the gRPC protocol."""

import re
from pathlib import Path

import pytest

from deploy.website.list_indentation import widened
from deploy.website.proto_pages import pages, prose
from tests.repo.tree import Tree

CONFIGURATION = "deploy/website/mkdocs.yml"
REQUIREMENTS = "deploy/website/requirements.txt"


def listed(tree: Tree) -> list[str]:
    """The pages in the navigation of the site, as paths from the root."""
    _, _, navigation = tree.text(CONFIGURATION).partition("\nnav:\n")
    return [f"docs/{page}" for page in re.findall(r"^ *- (?:[^:\n]+: )?(\S+\.md)$", navigation, re.MULTILINE)]


def misplaced(tree: Tree) -> list[str]:
    """Pages that the navigation does not list, lists twice, or lists although they do not exist."""
    wanted, found = set(tree.named(".md", below="docs/")), listed(tree)
    return [
        *(f"{page}: add it to the navigation in {CONFIGURATION}" for page in sorted(wanted - set(found))),
        *(f"{page}: listed in {CONFIGURATION}, but does not exist" for page in sorted(set(found) - wanted)),
        *(f"{page}: listed twice in {CONFIGURATION}" for page in sorted(set(found)) if found.count(page) > 1),
    ]


def test_the_navigation_lists_every_page_once(tree: Tree) -> None:
    """A reader of the site finds each page of docs/ in the navigation."""
    assert misplaced(tree) == []


def test_the_rule_on_the_navigation_fires(tmp_path: Path) -> None:
    """A page that is missing, gone or listed twice is named."""
    navigation = "site_name: x\nnav:\n  - Home: index.md\n  - Learn:\n      - a.md\n      - b/gone.md\n      - a.md\n"
    planted = {CONFIGURATION: navigation, "docs/index.md": "", "docs/a.md": "", "docs/b/new.md": ""}
    found = [finding.replace(CONFIGURATION, "X") for finding in misplaced(Tree.planted(tmp_path, planted))]
    assert found == [
        "docs/b/new.md: add it to the navigation in X",
        "docs/b/gone.md: listed in X, but does not exist",
        "docs/a.md: listed twice in X",
    ]


def test_the_tools_of_the_site_are_pinned(tree: Tree) -> None:
    """Two builds of the site use the same tools, and no later release of one changes a page."""
    loose = [line for line in tree.lines(REQUIREMENTS) if not re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line)]
    assert loose == []


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("* a\n  b\n\n  c\nd", "* a\n    b\n\n    c\nd"),
        ("1. a\n   * b\n     c\n2. d", "1. a\n    * b\n        c\n2. d"),
        ("* a\n  ```\n  * b\n  ```\n  c", "* a\n    ```\n    * b\n    ```\n    c"),
        ("text\n\n    code\n    * code", "text\n\n    code\n    * code"),
        ("```\n* a\n  b\n```\n* c\n  d", "```\n* a\n  b\n```\n* c\n    d"),
    ],
)
def test_lists_are_indented_for_the_site_as_github_reads_them(written: str, read: str) -> None:
    """Each list level has four spaces; code keeps its own indentation."""
    assert widened(written) == read


def test_comments_of_protos_mean_themselves() -> None:
    """Markup in a comment is text, except the start of a list item. Code and commands stay as they are."""
    comment = " Parked in %DLQ%<group>, or `a_b`: see *x* and y_z.\n\n * a list [1]\n\n grpcurl -d '<x_y_z>'\n"
    expected = (
        "Parked in %DLQ%&lt;group&gt;, or `a_b`: see \\*x\\* and y\\_z.\n\n* a list \\[1\\]\n\n    grpcurl -d '<x_y_z>'"
    )
    assert prose(comment) == expected


def test_the_page_of_a_proto_links_its_types_and_shows_its_comments() -> None:
    """A method links its messages, and a field has its number, type and comment. A map names both of its types."""
    entry = {
        "name": "NamesEntry",
        "options": {"mapEntry": True},
        "field": [
            {"name": "key", "number": 1, "type": "TYPE_STRING"},
            {"name": "value", "number": 2, "type": "TYPE_MESSAGE", "typeName": ".x.v1.Ask"},
        ],
    }
    fields = [
        {
            "name": "names",
            "number": 3,
            "label": "LABEL_REPEATED",
            "type": "TYPE_MESSAGE",
            "typeName": ".x.v1.Ask.NamesEntry",
        },
        {"name": "size", "number": 4, "label": "LABEL_OPTIONAL", "type": "TYPE_UINT32"},
    ]
    method = {"name": "Call", "inputType": ".x.v1.Ask", "outputType": ".x.v1.Ask", "serverStreaming": True}
    locations = [
        {"path": [12], "leadingComments": " A file.\n"},
        {"path": [4, 0, 2, 1], "leadingComments": " A size | a count,\n in bytes.\n"},
        {"path": [6, 0], "leadingComments": " A service. More of it.\n"},
    ]
    file = {
        "name": "x/v1/a.proto",
        "package": "x.v1",
        "messageType": [{"name": "Ask", "field": fields, "nestedType": [entry]}],
        "service": [{"name": "Calls", "method": [method]}],
        "sourceCodeInfo": {"location": locations},
    }
    overview, page = pages([file])
    assert "| [x.v1.Calls](x/v1/a.md#x.v1.Calls) | A service. |" in overview.text
    assert page.path == "reference/protocol/x/v1/a.md"
    assert page.text.startswith("# x/v1/a.proto\n\nA file.\n")
    assert "Request: [Ask](a.md#x.v1.Ask). Response: stream of [Ask](a.md#x.v1.Ask)." in page.text
    assert "| `names = 3` | map of `string` to [Ask](a.md#x.v1.Ask) |" in page.text
    assert "| `size = 4` | `uint32` | A size \\| a count, in bytes. |" in page.text
