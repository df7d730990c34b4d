"""Whether a topic can be written to, asked before rows are."""

from ortoo.client.produce.routes import query_route
from ortoo.spark.core.link import Link
from ortoo.spark.writing.write_options import WriteOptions


def check_target(link: Link, options: WriteOptions) -> None:
    """Errors: NotFound when the topic of the options does not exist or takes no messages."""
    if options.topic:
        link.run(query_route(link.connection, options.topic))
