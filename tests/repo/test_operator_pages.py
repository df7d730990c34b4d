"""The pages of ports and certificates list each setting of the code, with its default and the chart's port."""

import re
from typing import Final

from ortoo.common.machine.certificates import EXPIRES_NOW_MS, EXPIRES_SOON_MS, LIFETIME_SHARE, certificate_files
from tests.repo.settings_page import ROLES, rows
from tests.repo.tree import ROOT

PAGES: Final = ROOT / "docs/operations"
CHART: Final = ROOT / "deploy/k8s/chart"
PROCESSES: Final = {"namesrv": "name server", "enode": "enode", "snode": "snode", "console": "console"}
DAY_MS: Final = 86_400_000
OPENED: Final = ("listen_address", "metrics_address", "worker_port")


def table(page: str, section: str) -> list[list[str]]:
    """The rows of the first table in a section."""
    text = (PAGES / page).read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines[2:]]


def processes_of(cell: str) -> list[str]:
    """The roles that a cell names."""
    every = cell == "every process"
    return [role for role, name in PROCESSES.items() if every or name in cell.split(", ")]


def test_each_port_is_listed_with_its_default() -> None:
    """A firewall rule that lacks a port stops the cluster."""
    listed = {
        (role, setting.strip("`")): port
        for process, setting, port, _ in table("network.md", "Ports")
        for role in processes_of(process)
    }
    found = {
        (role, name): default
        for role, (_, cls) in ROLES.items()
        for name, default, _, _ in rows(cls())
        if name.endswith(OPENED)
    }
    assert listed.keys() == found.keys()
    for key, default in found.items():
        number = default.rpartition(":")[2]
        assert listed[key] == number if number not in ("", "0") else listed[key].endswith(" (chart)"), key


def test_the_ports_of_the_chart_are_in_the_chart() -> None:
    """A port that the chart changes is changed in the page."""
    chart = "".join(one.read_text() for one in (*CHART.glob("templates/*"), CHART / "values.yaml"))
    used = set(re.findall(r"(?<!\d)(?:80|84|94)\d\d(?!\d)", chart))
    assert {port.removesuffix(" (chart)") for _, _, port, _ in table("network.md", "Ports")} <= used


def test_each_certificate_is_listed_with_its_watch() -> None:
    """A file of certificates is watched by its process, or the page says that it is not."""
    listed = {
        (role, setting.strip("`")): watched == "yes"
        for process, setting, _, watched in table("certificates.md", "Files")
        for role in processes_of(process)
    }
    found = {
        (role, name): role != "console"
        for role, (_, cls) in ROLES.items()
        for name, _, _, _ in rows(cls())
        if name.endswith(("certificate_file", "ca_file"))
    }
    assert listed == found
    for (role, name), watched in found.items():
        if watched:
            assert [one.setting for one in certificate_files(type(role, (), {name: "file.pem"}))] == [name]


def test_the_calendar_has_the_times_of_the_code() -> None:
    """The findings, the chart's certificates, and the share of short-lived certificates."""
    page, values = (PAGES / "certificates.md").read_text(), (CHART / "values.yaml").read_text()
    assert f"| {EXPIRES_SOON_MS // DAY_MS} days before | the finding `certificate expires`" in page
    assert EXPIRES_NOW_MS == DAY_MS
    assert "| 1 day before | the finding is critical" in page
    assert LIFETIME_SHARE == 4
    assert "valid for less than twelve weeks are smaller: a quarter" in page
    assert EXPIRES_SOON_MS * LIFETIME_SHARE == 12 * 7 * DAY_MS
    duration, renewed = (re.findall(rf"^    {name}: (\d+)h$", values, re.M) for name in ("duration", "renewBefore"))
    assert f"valid for {int(duration[0]) // 24} days" in page
    assert f"| {int(renewed[0]) // 24} days before the end | cert-manager renews" in page


def test_the_index_of_operations_lists_every_page() -> None:
    """An operator finds each page from the list of all pages."""
    listed = re.findall(r"^\* \[[^]]+\]\(([\w-]+\.md)\)", (PAGES / "README.md").read_text(), re.M)
    assert sorted(listed) == sorted(page.name for page in PAGES.glob("*.md") if page.name != "README.md")
