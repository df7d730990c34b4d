"""Spark's manifests are complete: dialects of both operators, access, jobs. They refer to files of the image."""

import re
import subprocess

from tests.repo.tree import ROOT

FOLDER = ROOT / "deploy/k8s/spark"
DOCKERFILE = (ROOT / "deploy/docker/spark.Dockerfile").read_text()
TEXTS = {file.name: file.read_text() for file in FOLDER.glob("*.yaml")}
PYSPARK = next(
    line.partition("==")[2]
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line.startswith("pyspark==")
)


def test_both_operators_run_the_pinned_spark_with_the_image_s_program() -> None:
    """Version, image, program, service account and settings are the same in both dialects."""
    for name, version in (
        ("archive-apache.yaml", "spark.apache.org/v1"),
        ("archive-kubeflow.yaml", "sparkoperator.k8s.io/v1beta2"),
    ):
        text = TEXTS[name]
        assert f"apiVersion: {version}\nkind: SparkApplication" in text
        assert f'sparkVersion: "{PYSPARK}"' in text
        for word in (
            "ortoo-spark:0.1.0",
            "local:///opt/app/pipeline.py",
            "/etc/ortoo/pipeline.toml",
            "ortoo-lake",
            "Always",
        ):
            assert word in text, (name, word)
        assert re.search(r'serviceAccount(?:Name)?: "?spark"?', text)


def test_what_manifests_start_is_in_the_image() -> None:
    """The program, the entry point and the jobs exist, and the image contains them."""
    for path in ("deploy/docker/pipeline.py", "deploy/docker/spark-entrypoint.sh"):
        assert (ROOT / path).exists()
        assert path in DOCKERFILE
    assert re.findall(r"name: ortoo-(\w+)\n", TEXTS["jobs.yaml"]) == ["compact", "trace", "lag"]
    for line in re.findall(r"args: \[(.*)\]", TEXTS["jobs.yaml"]):
        assert line.startswith('"ortoo-pipeline", "')
        assert '"--once"' in line


def test_a_driver_may_do_what_spark_does_and_no_more() -> None:
    """The role is limited to one namespace and names its resources; no pod may become root."""
    access = TEXTS["access.yaml"]
    assert "ClusterRole" not in access
    assert '"*"' not in access
    assert "resources: [pods, services, configmaps, persistentvolumeclaims]" in access
    assert TEXTS["jobs.yaml"].count("runAsNonRoot: true") == 3
    assert "USER 185:185" in DOCKERFILE


def test_no_manifest_holds_a_secret() -> None:
    """Spark shows its settings in plans and pages, so they contain no secrets."""
    for text in TEXTS.values():
        assert not re.search(r"(?i)(password|secret|token):\s*\S", text)


def test_the_scripts_are_programs_that_a_shell_understands() -> None:
    """`bash -n` parses them without errors."""
    for path in (FOLDER / "submit.sh", ROOT / "deploy/docker/spark-entrypoint.sh", ROOT / "libs/spark/find_java.sh"):
        subprocess.run(["bash", "-n", str(path)], check=True)
        assert path.stat().st_mode & 0o111
