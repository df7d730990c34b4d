"""The page of alerts states the limits of the rules, and links to sections that exist."""

import re

import pytest

from tests.repo.tree import ROOT

RULES = (ROOT / "deploy/k8s/chart/files/alerts.yaml").read_text()
PAGE = (ROOT / "docs/operations/alerts.md").read_text()

LIMITS: tuple[tuple[str, str, str], ...] = (
    ("OrtooIndexNearlyFull", "0.8 *", "has used four fifths of"),
    ("OrtooDiskFillsUp", "< 0.1 *", "Less than a tenth of the bytes or inodes"),
    ("OrtooDiskFillsUp", "< 3 * 86400", "full within three days"),
    ("OrtooDiskNearlyFull", "< 0.05 *", "Less than a twentieth of the bytes or inodes"),
    ("OrtooDiskNearlyFull", "< 86400", "full within a day"),
    ("OrtooFewDescriptors", "> 0.8 *", "more than four fifths of its limit"),
    ("OrtooClockDiffers", "> 2", "differs by more than 2 s"),
    ("OrtooCertificateExpiresIn21Days", "< 21 * 86400", "expires within three weeks"),
    ("OrtooCertificateExpiresIn21Days", "4 *", "the limit is a quarter of its validity"),
    ("OrtooCertificateExpiresIn7Days", "12 *", "the limit is a twelfth of the validity"),
    ("OrtooGroupFallsBehind", "> 10000", "More than 10,000 messages wait"),
    ("OrtooOldMessage", "> 600", "has waited ten minutes"),
    ("OrtooDeadLetters", "[15m]", "a quarter of an hour after the last dead letter"),
    ("OrtooManyDeadLetters", "> 100", "more than 100 dead letters within a quarter of an hour"),
    ("OrtooHandlerFails", ">= 3", "has failed three times or more"),
    ("OrtooHandlerFails", "> 100", "more than 100 messages of the group wait in retries"),
    ("OrtooRetentionNearlyUsed", "> 0.75", "more than three quarters of its retention"),
    ("OrtooMessagesLost", "[15m]", "a quarter of an hour after the last loss"),
    ("OrtooOverloaded", "> 0.3", "0.3 s late"),
    ("OrtooSlowDisk", "> 0.1", "more than 0.1 s"),
    ("OrtooNoNameServer", "[1440m]", "during the last day"),
    ("OrtooOldTransaction", "> 1800", "open for half an hour"),
    ("OrtooSendsFail", "ratio60m > 14.4 * 0.001", "More than 1.44 % of all sends failed during the last hour"),
    ("OrtooSendsFail", "ratio360m > 6 * 0.001", "more than 0.6 % during the last six hours"),
    ("OrtooSendsFail", "* 0.001", "The objective is 0.1 %"),
    ("OrtooSendsFail", ">= 10", "Fewer than ten failed sends"),
    (
        "OrtooSendsSlow",
        "ratio60m > 14.4 * 0.01",
        "More than 14.4 % of sends took longer than 100 ms during the last hour",
    ),
    ("OrtooSendsSlow", "ratio360m > 6 * 0.01", "more than 6 % during the last six hours"),
    ("OrtooSendsSlow", "* 0.01", "The objective is 1 %"),
    ("OrtooSendsSlow", ">= 10", "Fewer than ten slow sends"),
)
"""An alert, a part of its rule, and the words for it in its section."""


@pytest.mark.parametrize(("alert", "limit", "words"), LIMITS)
def test_a_section_states_the_limit_of_its_rule(alert: str, limit: str, words: str) -> None:
    """A changed rule needs a changed page."""
    rule = RULES.partition(f"- alert: {alert}\n")[2].partition("- alert:")[0].partition("annotations:")[0]
    section = PAGE.partition(f"\n## {alert}\n")[2].partition("\n## ")[0]
    assert limit in rule
    assert words in section


def test_the_times_until_the_budget_is_used_up_follow_from_the_rates() -> None:
    """A rate of 14.4 times the objective uses up the budget of 30 days in 2.1 days, and 6 times in 5 days."""
    assert [round(30 / burn_rate) for burn_rate in (14.4, 6)] == [2, 5]
    assert "14.4 * 0.001" in RULES
    assert "6 * 0.001" in RULES
    assert "a month's error budget in about two days, the second in five" in PAGE


def test_each_link_of_the_page_to_itself_has_a_section() -> None:
    """A runbook sends the operator to a section that exists."""
    sections = {
        re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in re.findall(r"^## (.+)$", PAGE, re.M)
    }
    links = set(re.findall(r"\]\(#([^)]+)\)", PAGE))
    assert len(links) > 10
    assert links <= sections
