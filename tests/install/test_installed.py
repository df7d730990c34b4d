"""The installed packages: an application beside the lowest and the newest libraries, and clusters of the other ones."""

import re
import shutil
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.test_documents import as_a_shell_takes, says, steps
from tests.findings import OF_THE_MACHINE, is_of_machine
from tests.install.environments import Environment, lowest_versions, run
from tests.repo.tree import ROOT

pytestmark = [pytest.mark.install, pytest.mark.timeout(600)]
HEAVY = (
    *("numpy", "sqlalchemy", "redis", "cryptography", "uvloop", "starlette", "uvicorn", "jinja2"),
    *("ortoo.enode", "ortoo.namesrv", "ortoo.snode", "ortoo.console"),
)
"""Modules that an application's import of the client must not load."""
IMPORTED = f"import sys, ortoo.client, ortoo.client.blocking; print([one for one in {HEAVY} if one in sys.modules])"
IMPORT_TIME = """
import time
begin = time.perf_counter()
from ortoo.client import Message, ProducerSettings, connect
print(time.perf_counter() - begin)
"""
BROKER_TEST = """
from datetime import timedelta
from ortoo.client import Message

async def test_a_message_comes_back(broker):
    async with broker.connect() as mq:
        await mq.admin.ensure_topic("orders", queue_count=1)
        async with mq.producer("orders") as producer:
            assert (await producer.send(Message(b"hello"))).offset == 0
"""


def test_requirements_agree(application: Environment, servers: Environment) -> None:
    """`pip check` finds no conflict in either environment."""
    for environment in (application, servers):
        assert "No broken requirements found." in environment.pip("check")


def test_the_environments_have_the_versions(versions: str, application: Environment, archives: Path) -> None:
    """The lowest versions are those that the wheels name; the newest are other ones."""
    installed = application.versions()
    lowest = lowest_versions(archives, "ortoo")
    assert {"grpcio", "protobuf", "msgspec", "structlog", "fastcrc", "typer", "rich"} <= lowest.keys()
    same = [name for name, version in lowest.items() if re.match(rf"{re.escape(version)}(\.0)*$", installed[name])]
    assert same == (list(lowest) if versions == "lowest" else [])


def test_an_application_gets_no_server(application: Environment) -> None:
    """`pip install ortoo` brings no server and no library of servers, and `ortoo dev` names the extra."""
    installed = {name.lower() for name in application.versions()}
    assert not installed & {
        "numpy",
        "sqlalchemy",
        "alembic",
        "redis",
        "cryptography",
        "uvloop",
        "starlette",
        "ortoo-enode",
    }
    assert re.match(r"ortoo \d", application.run("ortoo", "--version").stdout)
    refused = application.run("ortoo", "dev", is_checked=False)
    assert refused.returncode == 1
    assert "pip install 'ortoo[server]'" in refused.stderr


def test_importing_the_client_loads_no_server(
    versions: str, application: Environment, servers: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client imports neither numpy nor a server, even if they are installed. Size and import time are printed."""
    for environment in (application, servers):
        assert environment.run("python", "-W", "error", "-c", IMPORTED).stdout.strip() == "[]"
    times_s = [float(application.run("python", "-c", IMPORT_TIME).stdout) for _ in range(5)]
    with capsys.disabled():
        sys.stdout.write(
            f"\n{versions}: an application's environment has {application.size_mib():.0f} MiB, "
            f"the imports of a first producer take {min(times_s) * 1000:.0f} ms\n"
        )


def test_the_program_of_the_readme_runs(application: Environment, address: str) -> None:
    """The first program of the README sends and receives its message."""
    for page in ("README.md", "libs/ortoo/README.md"):
        (program,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
        topic = page.split("/")[0].lower().replace(".", "-")
        program = (
            program.replace("localhost:8081", address)
            .replace('"horses"', f'"{topic}"')
            .replace('"stable"', f'"{topic}"')
        )
        printed = application.run("python", "-W", "error", "-c", program).stdout
        assert printed.splitlines() == ["durable, at offset 0", "two fresh horses"]


def test_the_tutorial_runs(application: Environment, address: str) -> None:
    """Each step of the tutorial prints what the page shows."""
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tutorial.md").read_text(), re.S)
    (application.folder / "invoices.py").write_text(program)
    for words, expected in steps("tutorial.md"):
        done = application.run(*as_a_shell_takes(words), address=address)
        assert says(done.stdout, expected), (words, expected, done.stdout)


def test_every_kind_of_client_works(application: Environment, address: str) -> None:
    """Producers, push, pull and pop consumers, handlers, operators' calls and the blocking client work together."""
    program = application.folder / "application.py"
    shutil.copy(Path(__file__).parent / "application.py", program)
    done = application.run("python", "-W", "error", str(program), address)
    assert done.stdout == "every kind of consumer received its messages\n"
    assert done.stderr == ""
    doctor = ("ortoo", "doctor", "--patience", "10")
    while is_of_machine(found := application.run(*doctor, address=address).stdout):
        pass
    assert "all is well" in found


def test_examples_run(application: Environment, address: str) -> None:
    """Examples that need no other packages run beside the installed client alone."""
    workflow = application.run("python", "-W", "error", str(ROOT / "examples/order_workflow.py"), address=address)
    assert workflow.stdout.splitlines()[-1].startswith("dead letter:")
    (application.folder / "people.csv").write_text("name,town\nAnn,Ulm\n")
    script = str(ROOT / "examples/csv_topic.py")
    application.run("python", "-W", "error", script, "load", "people", "people.csv", address=address)
    dumped = application.run("python", "-W", "error", script, "dump", "people", address=address)
    assert dumped.stdout.splitlines()[:2] == ["name,town", "Ann,Ulm"]


def test_the_console_shows_the_cluster(servers: Environment, address: str) -> None:
    """Its templates and static files are installed, and every check of the doctor runs.

    It shows no problem except those of a busy machine, and the dead letter of `test_examples_run` once it is counted.
    """
    with servers.console(address) as console:
        pages = {}
        for path in ("/", "/static/console.js", "/static/htmx-2.0.11.min.js"):
            with urllib.request.urlopen(f"http://{console}{path}", timeout=60) as answer:
                pages[path] = answer.read().decode()
    problems = set(re.findall(r"<strong>(.*?)</strong>", pages["/"]))
    assert problems <= OF_THE_MACHINE | {"dead letters"}
    assert ("No problem found" in pages["/"]) == (not problems)
    assert "Not checked" not in pages["/"]
    assert all(f"<bdi>{name}</bdi><td" in pages["/"] for name in ("namesrv-0", "enode-0", "snode-0"))
    assert "EventSource" in pages["/static/console.js"]
    assert "htmx" in pages["/static/htmx-2.0.11.min.js"]


def test_an_application_is_type_checked(application: Environment) -> None:
    """`mypy --strict` finds the types of the installed packages, and finds wrong uses of them."""
    program = application.folder / "checked.py"
    text = (Path(__file__).parent / "application.py").read_text()
    program.write_text(text)
    options = ("--strict", "--config-file", "/dev/null", "--cache-dir", str(application.folder / "mypy"))
    command = (sys.executable, "-m", "mypy", *options, "--python-executable", str(application.python), str(program))
    run(command, application.environ(), application.folder)
    program.write_text(text.replace("receipt.offset == 0", "receipt.ofset == 0"))
    refused = run(command, application.environ(), application.folder, is_checked=False)
    assert '"Receipt" has no attribute "ofset"' in refused.stdout


def test_a_test_of_an_application_runs(servers: Environment) -> None:
    """The installed pytest plugin gives a test its broker."""
    test = servers.folder / "test_orders.py"
    test.write_text(BROKER_TEST)
    done = servers.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test))
    assert "1 passed" in done.stdout
