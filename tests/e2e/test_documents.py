"""Every command in the documents is run: tutorial and answers unchanged, the others by tests of their own."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ortoo.verification.servers import command
from tests.findings import is_of_machine
from tests.repo.tree import ROOT

WALKED = ("tutorial.md", "how-to.md", "recurring-messages.md")
PROGRAMS = ("ortoo", "grpcurl", "make", "helm", "kubectl", "docker", "pip", "python")
JSON = "tests/e2e/test_json_of_commands.py"
ELSEWHERE = {
    **dict.fromkeys(
        ("ortoo topic offered", "ortoo topic adopt", "ortoo topic delete", "ortoo topic undelete"),
        "tests/e2e/test_directory_page.py",
    ),
    "ortoo tail orders --from-first": "tests/e2e/test_backups_page.py",
    "ortoo tail payments --last": "tests/e2e/test_recovery_page.py",
    "ortoo doctor": "tests/e2e/test_doctor.py",
    "ortoo message find orders --key": "tests/e2e/test_operator_tasks.py",
    "ortoo group describe": "tests/e2e/test_operator_tasks.py",
    "ortoo topic update orders --publish-order": "tests/integration/test_topic_rows.py",
    "ortoo topic create t": "tests/e2e/test_readme.py",
    'grpcurl -plaintext -d \'{"name":"g","slow_consumer': "tests/e2e/test_grpcurl_admin.py",
    'grpcurl -plaintext -d \'{"group":"g","topic":"t","time_ms"': "tests/e2e/test_grpcurl_admin.py",
    'grpcurl -plaintext -d \'{"user"': "tests/e2e/test_grpcurl_admin.py",
    'grpcurl -plaintext -d \'{"topic":"orders","offset"': "tests/e2e/test_trim_commands.py",
    "grpcurl -plaintext -H": "tests/integration/test_access.py",
    "helm install": "tests/deploy/test_chart.py",
    "helm upgrade": "tests/deploy/test_chart_upgrade.py",
    "docker build": "tests/deploy/test_image.py",
    "docker run": "tests/deploy/test_image.py",
    "docker compose": "tests/deploy/test_compose.py",
    "make dev": "tests/e2e/test_readme.py",
    "make -C ortoo dist": "tests/install/test_archives.py",
    "pip install": "tests/install/test_installed.py",
    "ortoo profile": "tests/unit/cli/test_main.py",
    **dict.fromkeys(("ortoo topic list --json", "ortoo lag billing --json", "ortoo dlq list billing --json"), JSON),
    "ortoo explain": "tests/simulation/test_explain.py",
    "ortoo delivery": "tests/simulation/test_explain.py",
    "grpcurl -plaintext HOST:PORT ortoo.v1.FindingsService": "tests/simulation/test_doctor_faults.py",
    "ortoo enode drain": "tests/simulation/test_draining.py",
    "ortoo enode fill": "tests/simulation/test_draining.py",
    "ortoo settings": "tests/simulation/test_settings.py",
    "ortoo export": "tests/unit/cli/cluster/test_declarations.py",
    "ortoo apply": "tests/unit/cli/cluster/test_declarations.py",
    **dict.fromkeys(
        ("ortoo tail orders --last", "ortoo tail orders --from", "ortoo consume", "ortoo bundle"),
        "tests/e2e/test_reading_commands.py",
    ),
    "ortoo dlq park": "tests/integration/test_operator_parking.py",
    **dict.fromkeys(("ortoo topic trim", "ortoo topic purge"), "tests/e2e/test_trim_commands.py"),
    'grpcurl -plaintext -d \'{"topic":"orders","time_ms":-1}\'': "tests/e2e/test_grpcurl_admin.py",
    "ortoo bench": "tests/e2e/test_bench_command.py",
    "ortoo enode forget": "tests/e2e/test_expected_enodes.py",
}
"""The tests that run the other commands of the documents, by the first words of a command."""
NOT_RUN = {
    "python -m ortoo.verification.simulation": "tests/simulation run seeds of it",
    "make simulate": "takes an hour",
    "make planted": "takes an hour",
    "python -m tests.simulation": "takes as long as its bugs need seeds",
    "kubectl": "there is no Kubernetes here",
    "python -m bench": "tests/unit/bench runs what it reckons",
}


def commands() -> Iterator[tuple[str, str]]:
    """(page, command) of every block in the documents of this folder and of operations."""
    for page in sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/operations").glob("*.md")]):
        for block in re.findall(r"^```(?:bash|console)?\n(.*?)^```", page.read_text(), re.S | re.M):
            for line in block.splitlines():
                words = line.removeprefix("$ ").strip()
                if words.split(" ")[0] in PROGRAMS:
                    yield page.name, words


def test_every_command_is_run_somewhere() -> None:
    """A command that no test runs may stop working unnoticed."""
    found = [(page, words) for page, words in commands() if page not in WALKED]
    assert len(found) > 5
    known = (*ELSEWHERE, *NOT_RUN)
    assert [(page, words) for page, words in found if not words.startswith(known)] == []
    assert [test for test in ELSEWHERE.values() if not (ROOT / test).exists()] == []


def steps(page: str) -> list[tuple[str, list[str]]]:
    """The page's commands, each with the lines that it must print."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            else:
                found[-1][1].append(line)
    return found


def says(out: str, expected: list[str]) -> bool:
    """Whether each expected line is in the output; `…` stands for any text."""
    patterns = [".*".join(map(re.escape, line.split("…"))) for line in expected]
    return all(re.search(rf"^{pattern}$", out, re.M) for pattern in patterns)


def as_a_shell_takes(script: str) -> list[str]:
    """The words of a command that needs no shell; a line with operators needs one."""
    lexer = shlex.shlex(script, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    return ["sh", "-c", script] if any(set(word) <= set("();<>|&") for word in words) else words


@pytest.mark.parametrize("page", WALKED)
async def test_the_page_is_true_step_by_step(page: str, tmp_path: Path) -> None:
    """Each command ends with 0 and prints what the page shows."""
    program = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S)
    (tmp_path / "invoices.py").write_text("".join(program))
    async with command.dev_process(tmp_path) as dev:
        for words, expected in steps(page):
            script = words.replace("python invoices.py", f"{sys.executable} {tmp_path / 'invoices.py'}")
            script = script.replace("ortoo doctor", "ortoo doctor --patience 10")
            outcome = await command.run(as_a_shell_takes(script), dev.address)
            while "ortoo doctor" in script and is_of_machine(outcome.stdout):
                outcome = await command.run(as_a_shell_takes(script), dev.address)
            assert outcome.exit_code == 0, (words, outcome)
            assert says(outcome.stdout, expected), (words, expected, outcome.stdout)
