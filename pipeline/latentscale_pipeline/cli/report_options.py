"""Options of every command that writes a report: format and destination."""

import click

written_as_option = click.option(
    "--format",
    "written_as",
    type=click.Choice(("html", "md", "json")),
    default="html",
    show_default=True,
    help="One HTML page that needs no network, Markdown, or JSON.",
)

output_option = click.option(
    "--output", metavar="FILE", help="Where to write it; printed otherwise."
)
