"""Write a report as one HTML page that needs no network.

Names chosen by users (of jobs, corpora, labels, measures) are escaped by the template. Figures are
embedded as JSON in which ``<``, ``>`` and ``&`` are escaped, so that no text can end the enclosing
element. The page has its own content security policy: only its two scripts run, and nothing is
fetched.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from latentscale_pipeline.views.content import Report


def write_html(report: Report) -> str:
    """Return a report as one self-contained HTML document.

    Returns
    -------
    str
        HTML of about 5 MB, nearly all of it the plotting library.
    """
    # Imported here because comparisons on a terminal don't need them.
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    figures = {figure.key: figure for part in report.sections for figure in part.figures}
    # A report without figures doesn't need the plotting library.
    scripts = [_newlines(get_plotlyjs()), _text("page.js")] if figures else []
    return environment.from_string(_text("page.html.j2")).render(
        report=report,
        figures={key: figure.document for key, figure in figures.items()},
        style=Markup(_text("page.css")),  # noqa: S704  (the package's own file)
        scripts=[Markup(script) for script in scripts],  # noqa: S704  (plotly's and our own)
        script_hashes=[_content_hash(script) for script in scripts],
    )


def _text(name: str) -> str:
    return _newlines(resources.files(__package__).joinpath(name).read_text("utf-8"))


def _newlines(text: str) -> str:
    """Normalise line ends as a browser does before it hashes a script."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _content_hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
