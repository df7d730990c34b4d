"""The prose of the repository: every text that a person reads, cut into sentences.

Documents, docstrings, comments, error and log texts, command help, comments of protos, the chart and the Makefile.
Code, links and tables of values are left out; inline code counts as one word.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from tests.repo.tree import Tree

CODE = "`code`"
LITERAL_WORDS_MIN = 4
"""A string literal of fewer words is a name or a label."""
FENCE = re.compile(r"^ {0,8}(```|~~~).*?^ {0,8}\1[ \t]*$", re.DOTALL | re.MULTILINE)
COMMENT_MARK = re.compile(r"^\s*(?:#+:?|//+)\s?")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z`*])")
WORD = re.compile(r"`[^`]*`|[A-Za-z0-9][\w'’.,/%:=+*<>-]*")
ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|approx)\.", re.IGNORECASE)


@dataclass(frozen=True)
class Text:
    """A paragraph, list item, table cell, heading, docstring paragraph, comment or literal."""

    file: str
    line: int
    kind: str
    """`heading`, `document`, `docstring`, `comment` or `literal`."""
    text: str

    @property
    def where(self) -> str:
        """File and line, as editors take them."""
        return f"{self.file}:{self.line}"

    def sentences(self) -> list[str]:
        """Its sentences, inline code replaced by one word."""
        plain = ABBREVIATIONS.sub(lambda match: match[0].replace(".", ""), _plain(self.text))
        return [part for part in SENTENCE_END.split(plain) if part.strip()]


def words_of(sentence: str) -> list[str]:
    """The words of a sentence; inline code is one word."""
    return WORD.findall(sentence)


def texts(tree: Tree) -> Iterator[Text]:
    """Every text of the repository."""
    for name in tree.names:
        if name.startswith("libs/wire/src/"):
            continue
        source = tree.text(name) if name.endswith((".md", ".py", ".proto", ".yaml", ".tpl", ".txt")) else ""
        if name.endswith(".md"):
            yield from _of_document(name, source)
        elif name.endswith(".py"):
            yield from _of_python(name, source)
        elif name.endswith(".proto"):
            yield from _of_comments(name, source, "//")
        elif name.startswith("deploy/") and name.endswith((".yaml", ".tpl")):
            yield from _of_comments(name, source, "#")
        elif name.startswith("deploy/") and name.endswith("NOTES.txt"):
            yield from _of_document(name, source)
        elif name == "Makefile":
            yield from _of_comments(name, tree.text(name), "#")


def _plain(text: str) -> str:
    text = re.sub(r"``[^`]*``|`[^`]*`", CODE, text)
    text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    text = re.sub(r"<[^>\s]+>|https?://\S+", CODE, text)
    return re.sub(r"\*\*|__|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)", "", text)


def _of_document(name: str, source: str) -> Iterator[Text]:
    source = FENCE.sub(lambda match: "\n" * match[0].count("\n"), source)
    source = re.sub(r"<!--.*?-->", lambda match: "\n" * match[0].count("\n"), source, flags=re.DOTALL)
    paragraph: list[str] = []
    first = 0

    def ended() -> Iterator[Text]:
        if paragraph:
            yield Text(name, first, "document", " ".join(paragraph))
            paragraph.clear()

    for number, line in enumerate(source.split("\n"), 1):
        bare = line.strip()
        if bare.startswith("#"):
            yield from ended()
            yield Text(name, number, "heading", bare.lstrip("#").strip())
        elif bare.startswith("|"):
            yield from ended()
            if not re.fullmatch(r"[|:\s-]+", bare):
                for cell in re.split(r"(?<!\\)\|", bare.strip("|")):
                    if cell.strip():
                        yield Text(name, number, "document", cell.strip())
        elif not bare or re.match(r"[*+-] |\d+[.)] |>", bare):
            yield from ended()
            bare = re.sub(r"^(?:[*+-] |\d+[.)] |> ?)+", "", bare)
            if bare:
                paragraph.append(bare)
                first = number
        else:
            first = first if paragraph else number
            paragraph.append(bare)
    yield from ended()


def _of_python(name: str, source: str) -> Iterator[Text]:
    nodes = list(ast.walk(ast.parse(source)))
    documented: set[int] = set()
    for node in nodes:
        for statement in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                documented.add(id(value))
                line = value.lineno
                for part in re.split(r"\n\s*\n|\n(?=\s*(?:[*-] |\d+[.)] ))", value.value):
                    prose = " ".join(
                        piece.strip()
                        for piece in part.split("\n")
                        if not piece.lstrip().startswith(">>>") and not piece.startswith(" " * (value.col_offset + 4))
                    )
                    if prose.strip():
                        yield Text(name, line, "docstring", re.sub(r"^(?:[*-] |\d+[.)] )", "", prose.strip()))
                    line += part.count("\n") + 1
    inside = {
        id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node
    }
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else CODE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented | inside:
            text = node.value
        else:
            continue
        if (
            len(words_of(text)) >= LITERAL_WORDS_MIN
            and re.search(r"[a-z]{2,} [a-z]{2,}", text)
            and "\n" not in text.strip()
        ):
            yield Text(name, node.lineno, "literal", text)
    for line, text in _comments(source):
        yield Text(name, line, "comment", text)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    gathered: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or re.match(r"#\s*(?:noqa|type:|pragma|!|-{5})", token.string):
            continue
        text = COMMENT_MARK.sub("", token.string).split("# noqa")[0].strip()
        if gathered and token.start[0] == last + 1:
            gathered.append(text)
        else:
            if gathered:
                yield first, " ".join(gathered)
            gathered, first = [text], token.start[0]
        last = token.start[0]
    if gathered:
        yield first, " ".join(gathered)


def _of_comments(name: str, source: str, mark: str) -> Iterator[Text]:
    gathered: list[str] = []
    first = 0
    for number, line in enumerate([*source.split("\n"), ""], 1):
        bare = line.strip()
        if (
            bare.startswith(mark)
            and not re.match(r"#\s*-{5}|#!", bare)
            and (text := COMMENT_MARK.sub("", bare).strip())
        ):
            first = first if gathered else number
            gathered.append(text)
            continue
        if gathered:
            if not gathered[0].startswith(("grpcurl", "buf:", "@")):
                yield Text(name, first, "comment", " ".join(gathered))
            gathered = []
        if name == "Makefile" and (found := re.search(r"^[\w-]+:.*?## (.*)$", line)):
            yield Text(name, number, "comment", found[1])
