"""The directive ``commands``: the ``--help`` text of every command."""

from __future__ import annotations

from collections.abc import Iterator

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from latentscale_pipeline.cli import COMMANDS, cli

WIDTH = 88


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class Commands(SphinxDirective):
    """A section for every command."""

    def run(self) -> list[nodes.Node]:
        """Make the sections."""
        return [section for name in COMMANDS for section in self._section(name)]

    def _section(self, name: str) -> list[nodes.Node]:
        section = nodes.section(ids=[f"command-{name}"], names=[f"command-{name}"])
        section += nodes.title("", f"latentscale {name}")
        for text in help_texts(name):
            section += nodes.literal_block("", text, language="text")
        return [section]


def help_texts(name: str) -> list[str]:
    """Return the help of a command and of those below it."""
    return list(_helps(click.Context(cli, info_name="latentscale"), name))


def _helps(above: click.Context, name: str) -> Iterator[str]:
    group = above.command
    command = group.get_command(above, name) if isinstance(group, click.Group) else None
    if command is None:
        raise LookupError(name)
    context = click.Context(command, info_name=name, parent=above, terminal_width=WIDTH)
    yield command.get_help(context)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from _helps(context, inner)
