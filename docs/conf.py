"""How the documentation is built: `make docs`. It needs no network and asks none of its readers for
one.
"""

import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent)]

project = "delan"
release = metadata.version("delan")
copyright = "the authors of delan, MIT licence"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",
    "arrows",
    "public_names",
]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
default_role = "code"
highlight_language = "text"
html_theme = "furo"
html_title = "delan"
html_math_renderer = "mathml"
html_copy_source = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_use_ivar = True
# An attribute that two classes have in common is a target twice for the references that napoleon
# makes of `Attributes:`; none of them is shown as a link.
suppress_warnings = ["ref.python"]
