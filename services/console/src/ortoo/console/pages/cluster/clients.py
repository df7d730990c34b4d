"""The connected clients and their spread over snodes, and the queues of one client."""

from collections import Counter

from starlette.responses import Response

from ortoo.common.machine.printable import printable_line
from ortoo.console.web.rendering import query_of
from ortoo.console.web.visit import Page, Visit

PAGE_CLIENTS = 200


async def show(visit: Visit) -> Response:
    """One page of the clients, by client id."""
    group, skip = visit.query("group"), visit.query_number("skip")
    found = await visit.admin.groups.list_clients(group)
    following = {"group": group, "skip": skip + PAGE_CLIENTS}
    return visit.page(
        "clients.html",
        title="Clients",
        commands=(("clients", *(("--group", group) if group else ())),),
        clients=found[skip : skip + PAGE_CLIENTS],
        client_count=len(found),
        by_snode=sorted(Counter(one.snode for one in found).items()),
        group=group,
        skip=skip,
        next_address=visit.link(f"/clients{query_of(following)}") if len(found) > skip + PAGE_CLIENTS else "",
    )


async def describe(visit: Visit) -> Response:
    """One client: its identity, and the queues that it has."""
    client_id = visit.query("id")
    found = await visit.admin.groups.describe_client(client_id, ask_client=False)
    return visit.page(
        "client.html", title=f"Client {printable_line(client_id)}", commands=(("clients", client_id),), found=found
    )


PAGES = (Page("/clients", show), Page("/client", describe))
