"""Generates libs/wire from protos/; `--check` only compares. Run by `make protos` and `make protos-check`."""

import filecmp
import shutil
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
PROTOS = ROOT / "protos"
OUTPUT = ROOT / "libs/wire/src"
PACKAGES = ("apache/rocketmq/v2", "ortoo/keda", "ortoo/v1")


def generate(output: Path) -> None:
    """Write the modules and their stubs for every proto below `output`."""
    include = Path(protoc.__file__).parent / "_proto"
    sources = sorted(p for package in PACKAGES for p in (PROTOS / package).glob("*.proto"))
    with_service = [p for p in sources if "\nservice " in p.read_text()]
    common = ["protoc", f"-I{PROTOS}", f"-I{include}"]
    if protoc.main([*common, f"--python_out={output}", f"--mypy_out=quiet:{output}", *map(str, sources)]):
        sys.exit("protoc failed")
    if protoc.main(
        [*common, f"--grpc_python_out={output}", f"--mypy_grpc_out=quiet,only_async:{output}", *map(str, with_service)]
    ):
        sys.exit("protoc failed for the services")


def differences(fresh: Path, committed: Path) -> list[str]:
    """Name every generated file that is missing, stale or left over in `committed`."""
    names = {p.relative_to(fresh) for p in fresh.rglob("*.py*")} | {
        p.relative_to(committed) for p in committed.rglob("*_pb2*") if p.suffix in {".py", ".pyi"}
    }
    return sorted(
        str(name)
        for name in names
        if not (fresh / name).exists()
        or not (committed / name).exists()
        or not filecmp.cmp(fresh / name, committed / name, shallow=False)
    )


def main() -> None:
    """Regenerate in place, or exit with 1 when the committed modules are not what protos/ gives."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        generate(fresh)
        if "--check" in sys.argv:
            stale = differences(fresh, OUTPUT)
            if stale:
                sys.exit("not up to date, run `make protos`: " + ", ".join(stale))
            return
        for package in PACKAGES:
            target = OUTPUT / package
            if target.exists():
                shutil.rmtree(target)
            shutil.copytree(fresh / package, target)
            (target / "__init__.py").write_text('"""Generated from protos/; never edited."""\n')
            (target / "py.typed").touch()


if __name__ == "__main__":
    main()
