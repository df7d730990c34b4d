"""The output of a benchmark: one JSON object, or a few lines for a person."""

import argparse
import asyncio
import json
import os
import platform
import sys
import sysconfig
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Any

from ortoo.common.cluster.service_settings import ServiceSettings

Figures = dict[str, Any]


def setting() -> Figures:
    """The machine and the versions a figure belongs to."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_build": python_build(),
        "grpcio": version("grpcio"),
        "transport": str(ServiceSettings.transport),
        "numpy": version("numpy"),
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def python_build() -> str:
    """How this interpreter was built: its speed differs by a fifth with it."""
    if sysconfig.get_config_var("prefix") == "/usr":
        return "as its distribution builds it"  # the configuration of a distribution does not show all of its build
    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    words = {"--enable-optimizations": "PGO", "--with-lto": "LTO"}
    parts = [word if option in options else f"no {word}" for option, word in words.items()]
    return ", ".join([*parts, "a shared library" if "--enable-shared" in options else "static"])


def ratio(ours: float, baseline: float) -> float:
    """Our figure divided by the baseline."""
    return round(ours / baseline, 3) if baseline else float("nan")


def main(
    name: str,
    method: str,
    measure: Callable[[argparse.Namespace], Coroutine[Any, Any, Figures]],
    **options: float | str | str,
) -> None:
    """Run one benchmark from the command line; `options` become flags of their default's type."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=method)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    for option, default in options.items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=type(default), default=default)
    arguments = parser.parse_args()
    before = setting()
    figures = asyncio.run(measure(arguments))
    result = {"bench": name, "method": method, "setting": before, **figures}
    if arguments.json:
        json.dump(result, sys.stdout)
        print()
        return
    print(f"{name}: {method}")
    for key, value in figures.items():
        print(f"  {key}: {json.dumps(value)}")
