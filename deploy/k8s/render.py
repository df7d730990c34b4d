"""Renders the chart into plain manifests, one folder for each example: `make manifests`."""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
HELM = HERE.parents[1] / ".tools" / "helm"
EXAMPLES = ("default", "minimal", "ha", "guarded")
HEAD = "# Made from deploy/k8s/chart by `make manifests`; edit that, not this.\n"


def rendered(example: str, helm: Path = HELM) -> dict[str, str]:
    """Render one example: file name to text. Errors: CalledProcessError."""
    values = () if example == "default" else ("--values", str(HERE / "examples" / f"{example}.yaml"))
    # A fixed version, so that the capabilities of a cluster do not change the text.
    fixed = ("--namespace", "ortoo", "--kube-version", "1.30.0", "--skip-tests")
    command = (str(helm), "template", "ortoo", str(HERE / "chart"), *fixed)
    text = subprocess.run((*command, *values), check=True, capture_output=True, text=True).stdout
    files: dict[str, str] = {}
    for part in re.split(r"^---\n", text, flags=re.MULTILINE):
        source = re.match(r"# Source: ortoo/templates/(\S+)\n", part)
        body = re.sub(r"\n[ \t]*(?=\n)", "", part[source.end() :] if source else "").strip()
        if source and body:
            known = files.get(source[1])
            files[source[1]] = f"{known}---\n{body}\n" if known else f"{HEAD}{body}\n"
    return files


def main() -> int:
    """Write the manifests, or with --check compare them. Exit codes: 0, 1 when they differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    wrong = []
    check = parser.parse_args().check
    for example in EXAMPLES:
        folder, files = HERE / "manifests" / example, rendered(example)
        stored = {file.name: file.read_text() for file in folder.glob("*.yaml")} if folder.exists() else {}
        if check:
            wrong += [
                f"{example}/{name}" for name in files.keys() | stored.keys() if files.get(name) != stored.get(name)
            ]
            continue
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    if wrong:
        sys.stderr.write(f"manifests differ from the chart, run `make manifests`: {', '.join(sorted(wrong))}\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
