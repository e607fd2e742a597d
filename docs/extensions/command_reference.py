"""The directive ``commands``: what every command says of itself under ``--help``."""

from __future__ import annotations

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
    root = click.Context(cli, info_name="latentscale", max_content_width=WIDTH)
    command = cli.get_command(root, name)
    assert command is not None
    context = click.Context(
        command, info_name=name, parent=root, max_content_width=WIDTH, terminal_width=WIDTH
    )
    texts = [command.get_help(context)]
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            below = command.get_command(context, inner)
            assert below is not None
            deeper = click.Context(
                below,
                info_name=inner,
                parent=context,
                max_content_width=WIDTH,
                terminal_width=WIDTH,
            )
            texts.append(below.get_help(deeper))
    return texts
