"""Every function and class of the Spark package is used."""

import ast
import re
from collections import Counter

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed; run `make spark-setup`")

from pyspark.sql import datasource
from pyspark.sql.streaming import datasource as streaming

from tests.repo.tree import ROOT

SOURCES = ROOT / "libs/spark/src"
OF_USERS = {"register", "text", "json", "avro", "protobuf", "msgpack", "DefaultSource"}
"""Names that applications call."""


def called_by_spark() -> set[str]:
    """The methods of a data source that Spark calls."""
    kinds = [kind for module in (datasource, streaming) for kind in vars(module).values() if isinstance(kind, type)]
    return {name for kind in kinds for name in vars(kind)}


def test_every_function_and_class_has_a_user() -> None:
    """Every defined name occurs elsewhere in the package; a use in a test does not count."""
    files = sorted(SOURCES.rglob("*.py"))
    text = "\n".join(file.read_text() for file in files)
    named = Counter(re.findall(r"\w+", re.sub(r'"""(.|\n)*?"""', "", text)))
    known = OF_USERS | called_by_spark()
    defined = [
        (file.relative_to(SOURCES), node.name)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    assert len(defined) > 200
    unused = [
        f"{file}: {name}" for file, name in defined
        if named[name] < 2 and name not in known and not name.startswith("__")
    ]  # fmt: skip
    assert unused == []
