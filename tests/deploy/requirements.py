"""Print the third-party requirements of the image, extras included; `make wheels` downloads them."""

import sys
import tomllib

from packaging.requirements import Requirement

from tests.repo.tree import ROOT

MEMBERS = tuple(f"libs/{name}" for name in ("wire", "common", "client", "cli")) + tuple(
    f"services/{name}" for name in ("namesrv", "enode", "snode", "console")
)
EXTRAS = {"libs/common": ("arrays", "service", "zstd", "lz4", "tracing"), "services/namesrv": ("postgresql",)}


def requirements() -> list[str]:
    """Every requirement that is not a package of this project."""
    found: set[str] = set()
    for file in sorted(ROOT / member / "pyproject.toml" for member in MEMBERS):
        project = tomllib.loads(file.read_text())["project"]
        found.update(project["dependencies"])
        for extra in EXTRAS.get(str(file.parent.relative_to(ROOT)), ()):
            found.update(project["optional-dependencies"][extra])
    return sorted(text for text in found if not Requirement(text).name.startswith("ortoo-"))


if __name__ == "__main__":
    sys.stdout.write(" ".join(requirements()) + "\n")
