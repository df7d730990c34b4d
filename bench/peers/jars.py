"""The Java side: jars fetched from Maven once into .tools/peers, and the load program compiled against them."""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

from bench.table import ROOT

Artefact = tuple[str, str, str]
FOLDER = ROOT / ".tools" / "peers"
SOURCE = Path(__file__).parent / "java" / "Load.java"
ROCKETMQ, KAFKA, CLIENT = "5.5.0", "4.3.1", "5.2.0"
SPARK = "4.2.0"
"""The newest Spark whose Kafka connector is in Maven Central."""
KAFKA_CLIENT = "confluent_kafka"
"""librdkafka as a Python package; `make bench-peers` installs it."""
ARTEFACTS: dict[str, tuple[Artefact, ...]] = {
    "rocketmq": tuple(("org.apache.rocketmq", f"rocketmq-{name}", ROCKETMQ) for name in ("namesrv", "broker", "proxy")),
    "kafka": (("org.apache.kafka", "kafka_2.13", KAFKA),),
    "spark-kafka": (("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK),),
    "client": (("org.apache.rocketmq", "rocketmq-client-java", CLIENT),),
}
"""Artefacts to fetch with their dependencies, by the folder they go to."""
SYSTEMS = ("rocketmq", "kafka", "client")
"""The folders that the comparison of brokers needs."""
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ortoo.bench</groupId>
  <artifactId>{name}</artifactId>
  <version>1</version>
  <dependencies>{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = """
    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"""


class NotHere(Exception):
    """A requirement of the comparison is missing on this machine; the message names it and how to get it."""


def check_tools() -> None:
    """Errors: NotHere when a JDK, Maven or librdkafka is missing."""
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing:
        raise NotHere(f"no {', '.join(missing)}: install a JDK 17 or newer with Maven")
    if importlib.util.find_spec(KAFKA_CLIENT) is None:
        raise NotHere("no librdkafka for Python: `make bench-peers` installs it")


def pom(name: str) -> str:
    """The project whose dependencies Maven copies for `name`."""
    lines = [DEPENDENCY.format(*map(escape, artefact)) for artefact in ARTEFACTS[name]]
    return POM.format(name=name, dependencies="".join(lines))


def bring(name: str) -> Path:
    """The folder with the jars of `name`, fetched if this was not done for the same versions. Errors: NotHere."""
    folder, project = FOLDER / name, pom(name)
    if _is_done(folder, project):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "pom.xml").write_text(project)
    print(f"bringing the jars of {name} ...", file=sys.stderr, flush=True)
    _run(folder, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=.")
    _say_done(folder, project)
    return folder


def load_program() -> str:
    """The class path of the compiled load program. Errors: NotHere."""
    client, folder, source = bring("client"), FOLDER / "load", SOURCE.read_text() + CLIENT
    path = f"{folder}:{client}/*"
    if not _is_done(folder, source):
        folder.mkdir(parents=True, exist_ok=True)
        _run(folder, "javac", "-cp", path, "-d", str(folder), str(SOURCE))
        _say_done(folder, source)
    return path


def _is_done(folder: Path, made_of: str) -> bool:
    mark = folder / ".ready"
    return mark.exists() and mark.read_text() == _digest(made_of)


def _say_done(folder: Path, made_of: str) -> None:
    (folder / ".ready").write_text(_digest(made_of))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise NotHere(f"`{command[0]}` failed: {' | '.join(said[:3])}")
