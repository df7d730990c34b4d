"""Runs the steps of a release in order: `make release`.

A step runs its commands, then checks its result. The run stops at the first step that is not done, and names the
remedy. `make release FROM=site` begins at a later step. With DRY_RUN=1, commands are printed instead of run, and every
step is checked as far as it can be.

Steps that publish are never run. They are printed at the end, for the maintainer.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKSUMS = "SHA256SUMS"
UNPUBLISHED = "Private :: Do Not Upload"


@dataclass(frozen=True)
class Tree:
    """The source that is released."""

    root: Path

    def text(self, name: str) -> str:
        """The content of a file."""
        return (self.root / name).read_text(encoding="utf-8")

    def versions(self) -> dict[str, str]:
        """The version of each project and of the chart, by file."""
        files = [self.root / "pyproject.toml", *sorted(self.root.glob("*/*/pyproject.toml"))]
        found = {str(file.relative_to(self.root)): _project(file)["version"] for file in files}
        chart = self.text("deploy/k8s/chart/Chart.yaml")
        for key in ("version", "appVersion"):
            (found[f"deploy/k8s/chart/Chart.yaml {key}"],) = re.findall(rf'^{key}: "?([^"\n]+)"?$', chart, re.M)
        return found

    @property
    def version(self) -> str:
        """The version of the release."""
        return self.versions()["pyproject.toml"]

    def published(self) -> list[str]:
        """The names of the published distributions."""
        projects = [_project(file) for file in self.root.glob("*/*/pyproject.toml")]
        return sorted(one["name"] for one in projects if UNPUBLISHED not in one.get("classifiers", []))

    def git(self, *arguments: str) -> str:
        """The output of git."""
        command = ("git", "-C", str(self.root), *arguments)
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _project(file: Path) -> dict[str, str]:
    project: dict[str, str] = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    return project


@dataclass(frozen=True)
class Step:
    """One step of the checklist."""

    name: str
    purpose: str
    check: Callable[[Tree], Iterable[str]] = lambda tree: ()
    """The reasons why the step is not done, each with its remedy."""
    commands: tuple[str, ...] = ()
    """Targets of the Makefile that do the step."""
    act: Callable[[Tree], object] | None = None
    """Code that does the step after the commands."""


def check_version(tree: Tree) -> Iterable[str]:
    """One version everywhere, and no tag with it."""
    versions, version = tree.versions(), tree.version
    for file, found in versions.items():
        if found != version:
            yield f"{file} has {found} instead of {version}: set one version in all files"
    if f"v{version}" in tree.git("tag").splitlines():
        yield f"the tag v{version} exists: raise the version"


def check_source(tree: Tree) -> Iterable[str]:
    """The files of the release are those of one commit."""
    if changed := tree.git("status", "--porcelain"):
        yield f"{len(changed.splitlines())} files are not committed: commit or remove them"


def check_changelog(tree: Tree) -> Iterable[str]:
    """The newest section has the version and a date."""
    heading = re.search(r"^## (.+)$", tree.text("CHANGELOG.md"), re.M)
    if heading is None or not re.fullmatch(rf"{re.escape(tree.version)} \(\d{{4}}-\d\d-\d\d\)", heading[1]):
        found = "nothing" if heading is None else heading[1]
        yield f"the newest section is {found!r}: write '## {tree.version} (YYYY-MM-DD)'"


def check_archives(tree: Tree) -> Iterable[str]:
    """`dist` has the wheel and the source archive of each distribution, and no others."""
    expected = set()
    for name in tree.published():
        stem = f"{name.replace('-', '_')}-{tree.version}"
        expected |= {f"{stem}-py3-none-any.whl", f"{stem}.tar.gz"}
    found = {file.name for file in (tree.root / "dist").glob("*") if file.name.endswith((".whl", ".tar.gz"))}
    if found != expected:
        missing, foreign = sorted(expected - found), sorted(found - expected)
        yield f"dist lacks {missing} and has other archives {foreign}: run `make clean dist`"


def existing(*names: str) -> Callable[[Tree], Iterable[str]]:
    """A check that files were written."""
    return lambda tree: (f"{name} is missing" for name in names if not (tree.root / name).exists())


def checksums(tree: Tree) -> str:
    """The SHA-256 of each file that a user downloads, in the form that `sha256sum --check` reads."""
    files = sorted(file for file in (tree.root / "dist").glob("ortoo*") if file.is_file())
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def write_checksums(tree: Tree) -> None:
    """Write the checksums, beside the list of packages that they cover. A signature of other checksums is removed."""
    for file in (tree.root / "dist").glob("ortoo-*.cdx.json"):
        file.unlink()  # of an earlier version
    shutil.copy(tree.root / "build/sbom.cdx.json", tree.root / f"dist/ortoo-{tree.version}.cdx.json")
    if list(check_checksums(tree)):
        for signature in signatures(tree):
            signature.unlink(missing_ok=True)
        (tree.root / "dist" / CHECKSUMS).write_text(checksums(tree))


def check_checksums(tree: Tree) -> Iterable[str]:
    """The checksums are those of the files in `dist`."""
    file = tree.root / "dist" / CHECKSUMS
    if not file.exists() or file.read_text() != checksums(tree):
        yield f"dist/{CHECKSUMS} does not match the files in dist: run `make release FROM=checksums`"


def signatures(tree: Tree) -> list[Path]:
    """The files that may hold the signature of the checksums, by minisign or by Sigstore."""
    return [tree.root / "dist" / f"{CHECKSUMS}{ending}" for ending in (".minisig", ".sigstore.json")]


def sign(tree: Tree) -> None:
    """Sign the checksums with minisign and the key in $RELEASE_KEY, if both are there. Errors: CalledProcessError."""
    if shutil.which("minisign") and (key := os.environ.get("RELEASE_KEY")):
        subprocess.run(("minisign", "-S", "-s", key, "-m", str(tree.root / "dist" / CHECKSUMS)), check=True)


def check_signature(tree: Tree) -> Iterable[str]:
    """A signature of the checksums is there."""
    if not any(file.exists() for file in signatures(tree)):
        remedy = f"install minisign and set RELEASE_KEY, or run `sigstore sign dist/{CHECKSUMS}`"
        yield f"dist/{CHECKSUMS} is not signed: {remedy}"


STEPS = (
    Step("version", "one version in all distributions and in the chart", check_version),
    Step("source", "nothing is uncommitted", check_source),
    Step("changelog", "the newest section has the version and a date", check_changelog),
    Step("tests", "all tests, with the built packages, too", commands=("test", "install-tests")),
    Step("resolve", "versions exist beside other large packages", commands=("resolve-check",)),
    Step("archives", "wheels and source archives", check_archives, ("dist",)),
    Step("packages", "the list of the packages in the image", existing("build/sbom.cdx.json"), ("sbom",)),
    Step("checksums", "the checksums of all files", check_checksums, act=write_checksums),
    Step("signature", "the signature of the checksums", check_signature, act=sign),
    Step("site", "the documentation site", existing("build/site/index.html"), ("site",)),
)
PUBLISHING = (
    "git tag --sign v{version} && git push origin v{version}",
    "twine upload dist/*.whl dist/*.tar.gz",
    "make image-check arm-check",
    "REGISTRY=registry.example/ortoo VERSION={version} COSIGN_KEY=cosign.key deploy/release.sh",
    "helm package deploy/k8s/chart, and add the package to the repository of charts",
    "copy build/site to the web server",
    "publish dist/SHA256SUMS with its signature, and the section of CHANGELOG.md, as the notes of the release",
)


def walk(tree: Tree, *, is_dry: bool, begin: str, say: Callable[[str], object]) -> int:
    """Run the steps from `begin`; returns the number of open steps. Unless `is_dry`, it stops at the first one."""
    names = [step.name for step in STEPS]
    if begin not in names:
        say(f"there is no step {begin}: choose one of {', '.join(names)}")
        return 1
    open_steps = 0
    for step in STEPS[names.index(begin) :]:
        say(f"{step.name}: {step.purpose}")
        for target in step.commands:
            say(f"  {'would run' if is_dry else 'run'}: make {target}")
            if not is_dry and subprocess.run(("make", target), cwd=tree.root, check=False).returncode:
                say(f"  open: make {target} failed")
                return open_steps + 1
        if step.act is not None and not is_dry:
            step.act(tree)
        reasons = list(step.check(tree))
        for reason in reasons:
            say(f"  open: {reason}")
        if not reasons and not (is_dry and step.commands):
            say("  done")
        open_steps += bool(reasons)
        if reasons and not is_dry:
            return open_steps
    say("to publish, after a review of dist/:" if not open_steps else "to publish, when no step is open:")
    for command in PUBLISHING:
        say(f"  {command.format(version=tree.version)}")
    return open_steps


def main() -> int:
    """Run the command line. The exit code is 1 for an open step, unless it is a dry run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="print the commands and check the present state")
    parser.add_argument("--from", dest="begin", default=STEPS[0].name, help="the first step")
    options = parser.parse_args()

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()  # before the output of the next command

    open_steps = walk(Tree(ROOT), is_dry=options.dry_run, begin=options.begin, say=say)
    if options.dry_run:
        say(f"{open_steps} of {len(STEPS)} steps are open")
        return 0
    return 1 if open_steps else 0


if __name__ == "__main__":
    sys.exit(main())
