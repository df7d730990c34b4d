"""The pages of the gRPC protocol: one for each file of protos/, from the descriptors and comments that `buf` reads."""

import html
import json
import posixpath
import re
import subprocess
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "reference/protocol"
COMMAND = "grpcurl "
"""The start of a paragraph that is an example of a call."""
_MESSAGE, _ENUM, _SERVICE, _SYNTAX, _PACKAGE = 4, 5, 6, 12, 2
_FIELD, _NESTED, _NESTED_ENUM, _VALUE, _METHOD = 2, 3, 4, 2, 2


@dataclass(frozen=True, slots=True)
class ProtoPage:
    """A page of the site."""

    path: str
    """Its source path below docs/."""
    title: str
    """Its title in the navigation."""
    text: str
    """Markdown."""


def described_files(root: Path, buf: Path) -> list[dict[str, Any]]:
    """The descriptors of all files below protos/. Errors: CalledProcessError when one does not compile."""
    command = (str(buf), "build", "-o", "-#format=json")
    output = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    files: list[dict[str, Any]] = json.loads(output)["file"]
    return sorted((one for one in files if not one["name"].startswith("google/")), key=lambda one: one["name"])


def pages(files: list[dict[str, Any]]) -> list[ProtoPage]:
    """The overview, then one page for each file."""
    places = {name: place for file in files for name, place in _places(file)}
    return [ProtoPage(f"{FOLDER}/index.md", "Overview", _overview(files))] + [
        ProtoPage(_page_of(file), posixpath.basename(file["name"]), _File(file, places).text()) for file in files
    ]


def prose(comment: str) -> str:
    """A comment as Markdown: text outside backticks means itself, lists stay, and an example of a command is code."""
    lines = [line.removeprefix(" ") for line in comment.strip("\n").split("\n")]
    return "\n\n".join(_paragraph(paragraph) for paragraph in re.split(r"\n\s*\n", "\n".join(lines))).strip("\n")


def _paragraph(text: str) -> str:
    if text.startswith(COMMAND):
        return textwrap.indent(text, "    ")
    return "\n".join(_literal(line) for line in text.split("\n"))


def _literal(line: str) -> str:
    bullet = re.match(r"\s*(?:[*-] |\d+[.)] )?", line)
    start = bullet.end() if bullet else 0
    parts = re.split(r"(`[^`]*`)", line[start:])
    outside = [re.sub(r"([*_\[\]\\|])", r"\\\1", html.escape(part, quote=False)) for part in parts[::2]]
    parts[::2] = outside
    return line[:start] + "".join(parts)


def _cell(comment: str) -> str:
    paragraphs = re.split(r"\n\s*\n", prose(comment))
    return "<br>".join(" ".join(paragraph.split()) for paragraph in paragraphs).replace("`|", "`\\|")


def _page_of(file: dict[str, Any]) -> str:
    return f"{FOLDER}/{file['name'].removesuffix('.proto')}.md"


def _places(file: dict[str, Any]) -> Iterator[tuple[str, str]]:
    def below(prefix: str, message: dict[str, Any]) -> Iterator[str]:
        name = f"{prefix}.{message['name']}"
        yield name
        for nested in message.get("nestedType", ()):
            yield from below(name, nested)
        for enum in message.get("enumType", ()):
            yield f"{name}.{enum['name']}"

    package = file["package"]
    for message in file.get("messageType", ()):
        yield from ((name, _page_of(file)) for name in below(package, message))
    for enum in file.get("enumType", ()):
        yield f"{package}.{enum['name']}", _page_of(file)


def _overview(files: list[dict[str, Any]]) -> str:
    lines = [
        "# gRPC protocol",
        "",
        "For authors of clients: the services of Ortoo, and those of RocketMQ and KEDA that Ortoo implements. "
        "These pages are made from the files in `protos/`.",
        "",
        "| service | purpose |",
        "|---|---|",
    ]
    for file in files:
        comments = _comments(file)
        link = posixpath.relpath(_page_of(file), FOLDER)
        for number, service in enumerate(file.get("service", ())):
            full = f"{file['package']}.{service['name']}"
            purpose = re.split(r"(?<=\.)\s", _cell(comments.get((_SERVICE, number), "")))[0]
            lines.append(f"| [{full}]({link}#{full}) | {purpose} |")
    return "\n".join(lines) + "\n"


def _comments(file: dict[str, Any]) -> dict[tuple[int, ...], str]:
    return {
        tuple(one.get("path", ())): one.get("leadingComments", "") or one.get("trailingComments", "")
        for one in file["sourceCodeInfo"]["location"]
    }


class _File:
    """The page of one file."""

    def __init__(self, file: dict[str, Any], places: dict[str, str]) -> None:
        self.file = file
        self.places = places
        self.comments = _comments(file)

    def text(self) -> str:
        package = self.file["package"]
        lines = [f"# {self.file['name']}", "", prose(self._head()), "", f"The package is `{package}`.", ""]
        for number, service in enumerate(self.file.get("service", ())):
            lines += self._service(package, (_SERVICE, number), service)
        for number, message in enumerate(self.file.get("messageType", ())):
            lines += self._message(package, (_MESSAGE, number), message)
        for number, enum in enumerate(self.file.get("enumType", ())):
            lines += self._enum(package, (_ENUM, number), enum)
        return "\n".join(lines)

    def _head(self) -> str:
        head = self.comments.get((_SYNTAX,), "")
        return "" if "Licensed to the Apache" in head or "Licensed under" in head else head

    def _service(self, package: str, path: tuple[int, ...], service: dict[str, Any]) -> Iterator[str]:
        full = f"{package}.{service['name']}"
        yield from (f"## service {service['name']} {{ #{full} }}", "", prose(self.comments.get(path, "")), "")
        for number, method in enumerate(service.get("method", ())):
            yield from (f"### {service['name']}.{method['name']} {{ #{full}.{method['name']} }}", "")
            request = self._stream(method.get("clientStreaming", False)) + self._type(method["inputType"])
            answer = self._stream(method.get("serverStreaming", False)) + self._type(method["outputType"])
            yield from (f"Request: {request}. Response: {answer}.", "")
            yield from (prose(self.comments.get((*path, _METHOD, number), "")), "")

    def _message(self, prefix: str, path: tuple[int, ...], message: dict[str, Any]) -> Iterator[str]:
        full = f"{prefix}.{message['name']}"
        short = full.removeprefix(f"{self.file['package']}.")
        yield from (f"## {short} {{ #{full} }}", "", prose(self.comments.get(path, "")), "")
        nested = message.get("nestedType", ())
        entries = {f".{full}.{one['name']}": one for one in nested if one.get("options", {}).get("mapEntry")}
        if message.get("field"):
            yield from ("| field | type | meaning |", "|---|---|---|")
        oneofs = message.get("oneofDecl", ())
        for number, field in enumerate(message.get("field", ())):
            meaning = _cell(self.comments.get((*path, _FIELD, number), ""))
            if "oneofIndex" in field and not field.get("proto3Optional"):
                meaning = f"One of `{oneofs[field['oneofIndex']]['name']}`. {meaning}"
            yield f"| `{field['name']} = {field['number']}` | {self._field_type(field, entries)} | {meaning} |"
        yield ""
        for number, one in enumerate(nested):
            if not one.get("options", {}).get("mapEntry"):
                yield from self._message(full, (*path, _NESTED, number), one)
        for number, enum in enumerate(message.get("enumType", ())):
            yield from self._enum(full, (*path, _NESTED_ENUM, number), enum)

    def _enum(self, prefix: str, path: tuple[int, ...], enum: dict[str, Any]) -> Iterator[str]:
        full = f"{prefix}.{enum['name']}"
        short = full.removeprefix(f"{self.file['package']}.")
        yield from (f"## enum {short} {{ #{full} }}", "", prose(self.comments.get(path, "")), "")
        yield from ("| value | meaning |", "|---|---|")
        for number, value in enumerate(enum["value"]):
            meaning = _cell(self.comments.get((*path, _VALUE, number), ""))
            yield f"| `{value['name']} = {value.get('number', 0)}` | {meaning} |"
        yield ""

    @staticmethod
    def _stream(streaming: bool) -> str:
        return "stream of " if streaming else ""

    def _field_type(self, field: dict[str, Any], entries: dict[str, Any]) -> str:
        if entry := entries.get(field.get("typeName", "")):
            key, value = (self._field_type(one, {}) for one in entry["field"])
            return f"map of {key} to {value}"
        name = self._type(field["typeName"]) if "typeName" in field else f"`{field['type'][5:].lower()}`"
        if field.get("label") == "LABEL_REPEATED":
            return f"repeated {name}"
        return f"optional {name}" if field.get("proto3Optional") else name

    def _type(self, name: str) -> str:
        full = name.removeprefix(".")
        short = full.removeprefix(f"{self.file['package']}.")
        if full not in self.places:
            return f"`{full}`"
        return f"[{short}]({posixpath.relpath(self.places[full], posixpath.dirname(_page_of(self.file)))}#{full})"
