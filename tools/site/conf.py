"""Settings of Sphinx. `python -m tools.site` names this folder; the pages are staged elsewhere."""

from __future__ import annotations

from importlib import metadata

project = "tilepipe"
author = "The tilepipe authors"
copyright = "the tilepipe authors, Apache-2.0"
version = release = metadata.version("tilepipe")

extensions = ["myst_parser"]
root_doc = "index"
source_suffix = {".md": "markdown"}
default_role = "literal"
highlight_language = "text"
smartquotes = False
python_maximum_signature_line_length = 80
add_module_names = False

myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]
# The types of signatures are links where their names are unambiguous, plain text elsewhere.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = f"tilepipe {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
