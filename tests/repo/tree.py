"""The repository for its rules: the files that are committed, or about to be."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ("libs/wire/src/",)


class Tree:
    """Files below a root; rules read them and name what they find."""

    def __init__(self, root: Path, names: Iterable[str]) -> None:
        """`names` are paths relative to `root`, with slashes."""
        self.root = root
        self.names = tuple(sorted(names))

    @classmethod
    def of_git(cls, root: Path) -> "Tree":
        """Every file that git tracks or would track."""
        command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
        return cls(root, (name for name in listed if name and (root / name).is_file()))

    @classmethod
    def planted(cls, root: Path, contents: Mapping[str, str]) -> "Tree":
        """A small tree, written to disk from name to text, to test that a rule fires."""
        for name, text in contents.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return cls(root, (p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()))

    def text(self, name: str) -> str:
        """The content of a file; bytes that are not UTF-8 become replacement characters."""
        return (self.root / name).read_text(encoding="utf-8", errors="replace")

    def lines(self, name: str) -> list[str]:
        """The lines of a file."""
        return self.text(name).splitlines()

    def named(self, *suffixes: str, below: str = "", generated: bool = False) -> Iterator[str]:
        """The files with one of the suffixes, below a folder; generated ones only on request."""
        for name in self.names:
            if name.endswith(suffixes) and name.startswith(below) and (generated or not name.startswith(GENERATED)):
                yield name
