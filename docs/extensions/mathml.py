"""Formulas as MathML, made while the site is built.

Browsers draw MathML without a script, so a page needs no network. docutils, which comes with
Sphinx, translates the formulas. A formula that it can't translate gives a warning, which ends the
build.
"""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

LOGGER = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def visit_math(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula in a line of text."""
    translator.body.append(translate(node, as_block=False))
    raise nodes.SkipNode


def visit_math_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    translator.body.append('<div class="formula">')
    translator.body.append(translate(node, as_block=True))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def translate(node: nodes.Element, *, as_block: bool) -> str:
    """Turn a node's TeX into MathML; where that fails, warn and show the TeX."""
    text = node.astext()
    try:
        return str(tex2mathml(text, as_block=as_block))
    except MathError as error:
        LOGGER.warning("no MathML for %r: %s", text, error, location=node)
        return f"<code>{nodes.unescape(text)}</code>"
