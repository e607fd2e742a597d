"""How Sphinx builds the site: ``make docs``.

The build makes everything that a page needs: formulas become MathML, and tables of configuration
and results come from the models and the schema. No page loads anything from elsewhere.
"""

import sys
import warnings
from pathlib import Path

import latentscale

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

project = "latentscale"
author = "The latentscale authors"
project_copyright = author
version = release = latentscale.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "mathml",
    "configuration_reference",
    "results_reference",
    "command_reference",
    "promises",
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

html_theme = "furo"
html_title = "latentscale"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
math_renderer = "mathml"
html_math_renderer = "mathml"

pygments_style = "default"
highlight_language = "text"
# Two dashes begin an option.
smartquotes = False

numpydoc_show_class_members = False
# The docstring of a numba function that a module imports; it is on no page.
warnings.filterwarnings("ignore", message="Unknown section Args", category=UserWarning)
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autosummary_generate = True
templates_path = ["_templates"]
nitpicky = True
# Links to other projects aren't checked, because a build needs no network.
nitpick_ignore_regex = [("py:.*", r"(numpy|collections)\..*")]
