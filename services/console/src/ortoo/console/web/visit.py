"""One request of a browser: its session, the client of its user, and the answers that pages return."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ortoo.client import Admin, Client
from ortoo.common.errors import Invalid
from ortoo.common.process.clock import Clock
from ortoo.console.cluster.rights import EVERYTHING, NOTHING, Rights, rights_on
from ortoo.console.settings import ConsoleSettings
from ortoo.console.web.forms import whole_number
from ortoo.console.web.rendering import shell_words
from ortoo.console.web.sessions import BrowserSession

if TYPE_CHECKING:  # which serves the pages that this module describes
    from ortoo.console.web.console import Console

GRPCURL_COMMANDS_MAX = 12
"""Maximum number of commands on a page. The number of omitted commands is shown."""

SECTIONS = (
    ("/", "Problems"),
    ("/messages", "Find a message"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/enodes", "Enodes"),
    ("/delayed", "Delayed"),
    ("/transactions", "Transactions"),
    ("/clients", "Clients"),
    ("/users", "Users"),
    ("/settings", "Settings"),
    ("/audit", "Changes"),
)
"""Path and text of the links at the top of each page."""


@dataclass(eq=False, slots=True)
class Visit:
    """One request, with all that a page needs to answer it."""

    request: Request
    session: BrowserSession
    client: Client
    console: "Console"
    form: Mapping[str, str] = field(default_factory=dict)
    """The fields of the submitted form; empty for a page."""
    grpcurl: list[str] = field(default_factory=list)
    """The calls that the page has made, as commands."""
    rights: Rights = EVERYTHING
    """The rights of the user on the topic or group of the address."""

    @property
    def settings(self) -> ConsoleSettings:
        """The settings of the console."""
        return self.console.settings

    @property
    def clock(self) -> Clock:
        """The clock of the console."""
        return self.console.clock

    @property
    def admin(self) -> Admin:
        """The operator's calls, with the rights of the user."""
        return self.client.admin

    @property
    def path(self) -> str:
        """The path of the address, below the root of the cluster."""
        return self.request.url.path.removeprefix(self.console.cluster.root)

    @property
    def bodies_hidden(self) -> bool:
        """Whether pages leave out the content of messages, unless the user requested that of one message."""
        return self.settings.bodies_hidden or self.settings.bodies_masked

    async def rights_on(self, name: str) -> Rights:
        """The rights of the user on a topic or group. Errors: Forbidden when the user has to sign in."""
        return EVERYTHING if self.session.credentials is None else await rights_on(self.admin, name)

    def name(self, parameter: str = "name") -> str:
        """A name from the path of the address."""
        return str(self.request.path_params[parameter])

    def query(self, parameter: str) -> str:
        """A parameter of the address; empty if it is missing."""
        return str(self.request.query_params.get(parameter, "")).strip()

    def query_number(self, parameter: str, *, default: int = 0, maximum: int = 1 << 62) -> int:
        """A number of the address. Errors: Invalid."""
        return whole_number(self.query(parameter), parameter, default=default, maximum=maximum)

    def field(self, name: str) -> str:
        """A field of the submitted form; empty if it is missing."""
        return self.form.get(name, "").strip()

    def field_number(self, name: str, *, default: int = 0, maximum: int = (1 << 32) - 1) -> int:
        """A number of the submitted form. Errors: Invalid."""
        return whole_number(self.form.get(name, ""), name, default=default, maximum=maximum)

    def check_confirmed(self, name: str, effect: str) -> None:
        """Check that the user has typed the name of what a dangerous action changes. Errors: Invalid."""
        if self.field("confirmed") != name:
            raise Invalid(f"does not match; type the name of the {effect}", field="confirmed")

    def page(
        self, template: str, *, title: str, commands: tuple[tuple[str, ...], ...] = (), status: int = 200, **values: Any
    ) -> Response:
        """A page. `commands` are the `ortoo` commands that show or do the same, as words."""
        return HTMLResponse(self.fragment(template, title=title, commands=commands, **values), status)

    def fragment(
        self, template: str, *, title: str = "", commands: tuple[tuple[str, ...], ...] = (), **values: Any
    ) -> str:
        """The text of a template."""
        shown = list(dict.fromkeys(self.grpcurl))
        cluster, path = self.console.cluster, self.path
        common = {
            "title": title,
            "commands": [shell_words(("ortoo", *cluster.command_options, *words)) for words in commands],
            "grpcurl": shown[:GRPCURL_COMMANDS_MAX],
            "grpcurl_omitted": max(0, len(shown) - GRPCURL_COMMANDS_MAX),
            "session": self.session,
            "root": cluster.root,
            "cluster_name": cluster.name,
            "clusters": self.console.shared.clusters,
            "sections": SECTIONS,
            "section": next((one for one, _ in SECTIONS if path == one or path.startswith(f"{one}/")), ""),
            "read_only": self.settings.read_only,
            "may": NOTHING if self.settings.read_only else self.rights,
            "bodies_hidden": self.bodies_hidden,
            "now_ms": self.clock.now_ms(),
        }
        return self.console.shared.rendering.render(template, common | values)

    def link(self, path: str) -> str:
        """The address of a page of this cluster, with its query."""
        return self.console.cluster.root + path

    def redirect(self, path: str) -> Response:
        """The answer to an action: the page of this cluster that shows its result."""
        return RedirectResponse(self.link(path), 303)


Handler = Callable[[Visit], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Page:
    """One address of the console."""

    path: str
    show: Handler
    is_action: bool = False
    """Whether it is a POST with the token of the session."""
    changes_cluster: bool = True
    """Whether the action changes the cluster: it is logged, and refused in read-only mode."""

    def route(self, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
        """The route to the endpoint that serves this page."""
        return Route(self.path, endpoint, methods=["POST"] if self.is_action else ["GET"])
