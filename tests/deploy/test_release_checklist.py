"""The checklist of a release names each step that is not done, and a dry run changes nothing."""

import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.release_checklist import (
    CHECKSUMS,
    STEPS,
    Tree,
    check_archives,
    check_changelog,
    check_checksums,
    check_signature,
    check_source,
    check_version,
    sign,
    walk,
    write_checksums,
)
from tests.repo.tree import ROOT

CHART = "version: {0}\nappVersion: {0}\n"
PROJECT = '[project]\nname = "ortoo-{}"\nversion = "{}"\nclassifiers = {}\n'


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A small source that is ready to be released as 1.2.3, with its archives."""
    for name, text in {
        "pyproject.toml": PROJECT.format("workspace", "1.2.3", "[]"),
        "libs/client/pyproject.toml": PROJECT.format("client", "1.2.3", "[]"),
        "libs/private/pyproject.toml": PROJECT.format("private", "1.2.3", '["Private :: Do Not Upload"]'),
        "deploy/k8s/chart/Chart.yaml": CHART.format("1.2.3"),
        "CHANGELOG.md": "# Changelog\n\n## 1.2.3 (2027-01-31)\n\n## 1.2.2 (2026-12-01)\n",
        ".gitignore": "/dist/\n/build/\n",
        "dist/ortoo_client-1.2.3-py3-none-any.whl": "wheel",
        "dist/ortoo_client-1.2.3.tar.gz": "sources",
        "build/sbom.cdx.json": "{}",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "a")):
        subprocess.run((*git, *arguments), check=True)
    return Tree(tmp_path)


def test_a_source_that_is_ready_has_no_open_step(tree: Tree) -> None:
    """Version, source, changelog, archives and checksums are accepted."""
    write_checksums(tree)
    for check in (check_version, check_source, check_changelog, check_archives, check_checksums):
        assert list(check(tree)) == []
    done = subprocess.run(("sha256sum", "--check", CHECKSUMS), cwd=tree.root / "dist", check=True, capture_output=True)
    assert done.stdout.decode().count(": OK") == 3


def test_each_mistake_is_named(tree: Tree) -> None:
    """A second version, a used tag, a changed file, a missing date, a foreign archive and changed bytes are found."""
    write_checksums(tree)
    (tree.root / "libs/client/pyproject.toml").write_text(PROJECT.format("client", "1.2.4", "[]"))
    subprocess.run(("git", "-C", str(tree.root), "tag", "v1.2.3"), check=True)
    (tree.root / "CHANGELOG.md").write_text("## 1.2.3 (not yet released)\n")
    (tree.root / "dist/ortoo_client-1.2.2.tar.gz").write_text("old")
    (wrong, used) = check_version(tree)
    assert "libs/client/pyproject.toml has 1.2.4 instead of 1.2.3" in wrong
    assert "v1.2.3 exists" in used
    assert "2 files" in " ".join(check_source(tree))
    assert "write '## 1.2.3 (YYYY-MM-DD)'" in " ".join(check_changelog(tree))
    assert "ortoo_client-1.2.2.tar.gz" in " ".join(check_archives(tree))
    assert "does not match" in " ".join(check_checksums(tree))
    assert "is not signed" in " ".join(check_signature(tree))


def test_a_signature_of_other_checksums_is_removed(tree: Tree) -> None:
    """A signature lasts as long as the checksums, so that a rebuilt archive is signed again."""
    write_checksums(tree)
    (signature := tree.root / "dist" / f"{CHECKSUMS}.sigstore.json").write_text("{}")
    write_checksums(tree)
    assert list(check_signature(tree)) == []
    (tree.root / "dist/ortoo_client-1.2.3.tar.gz").write_text("other sources")
    write_checksums(tree)
    assert not signature.exists()


def test_minisign_signs_the_checksums(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users verify the signature with the public key."""
    if shutil.which("minisign") is None:
        pytest.skip("NO minisign, so the signature was NOT tested; install minisign")
    key, public = tmp_path / "key", tmp_path / "key.pub"
    subprocess.run(("minisign", "-G", "-W", "-p", str(public), "-s", str(key)), check=True, capture_output=True)
    monkeypatch.setenv("RELEASE_KEY", str(key))
    write_checksums(tree)
    sign(tree)
    assert list(check_signature(tree)) == []
    verify = ("minisign", "-V", "-p", str(public), "-m", str(tree.root / "dist" / CHECKSUMS))
    subprocess.run(verify, check=True, capture_output=True)


def test_a_walk_stops_at_the_first_open_step(tree: Tree) -> None:
    """A walk that is not dry runs nothing after a step that is not done, and can begin at that step."""
    (tree.root / "CHANGELOG.md").write_text("")
    said: list[str] = []
    assert walk(tree, is_dry=False, begin="version", say=said.append) == 1
    assert said[-1].startswith("  open: 1 files are not committed")
    assert not any(line.startswith("changelog") for line in said)
    assert walk(tree, is_dry=False, begin="nothing", say=said.append) == 1
    assert "there is no step nothing" in said[-1]


def test_a_dry_run_prints_each_step_and_changes_nothing() -> None:
    """`make release DRY_RUN=1` prints the commands of each step and of the publication, and runs none of them."""
    before = {file: file.stat().st_mtime_ns for file in (ROOT / "dist").glob("*")}
    done = subprocess.run(
        ("make", "release", "DRY_RUN=1"), cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines if line.split(":")[0] in {step.name for step in STEPS}] == [
        step.name for step in STEPS
    ]
    commands = [target for step in STEPS for target in step.commands]
    assert [line.removeprefix("  would run: make ") for line in lines if "would run" in line] == commands
    assert any("twine upload" in line for line in lines)
    assert {file: file.stat().st_mtime_ns for file in (ROOT / "dist").glob("*")} == before
    makefile = (ROOT / "Makefile").read_text()
    for target in commands:
        assert f"\n{target}:" in makefile


def test_the_page_explains_each_step() -> None:
    """docs/contributing/releasing.md has a row for each step, in their order."""
    page = (ROOT / "docs/contributing/releasing.md").read_text()
    rows = [line.split("|")[1].strip(" `") for line in page.splitlines() if line.startswith("| `")]
    assert rows == [step.name for step in STEPS]
