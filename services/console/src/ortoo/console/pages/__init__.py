"""The pages of the console: each module has the requests of one page and of its actions."""

from ortoo.console.pages import missing, sign_in
from ortoo.console.pages.cluster import audit, clients, enodes, overview, retire, settings, users
from ortoo.console.pages.groups import alter as alter_group
from ortoo.console.pages.groups import dead_letters, explain, group, lag_history, park, reset
from ortoo.console.pages.groups import listing as groups
from ortoo.console.pages.messages import delayed, find, message, transactions
from ortoo.console.pages.topics import alter as alter_topic
from ortoo.console.pages.topics import listing as topics
from ortoo.console.pages.topics import topic
from ortoo.console.web.visit import Page

_MODULES = (
    *(overview, find, message, topics, topic, groups, group, lag_history, explain, dead_letters, reset, park),
    *(alter_topic, alter_group),
    *(enodes, retire, delayed, transactions, clients, users, settings, audit, sign_in),
)
ALL_PAGES: tuple[Page, ...] = tuple(page for module in _MODULES for page in module.PAGES)
error_page = missing.PAGE
