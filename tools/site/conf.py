"""Settings of Sphinx. `python -m tools.site` names this folder; the pages are staged elsewhere."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from docutils import nodes
from sphinx import addnodes

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


def setup(app: Any) -> None:
    """Connects what keeps the build short."""
    app.connect("html-page-context", _navigate_by_titles, priority=100)  # before the theme's


def _navigate_by_titles(app: Any, page: str, template: str, context: Any, _: object) -> None:
    """The navigation beside each page needs titles alone. Sphinx copies all headings and all
    members of the API for it, for each page, and throws them away: half of the build's time.
    """
    whole = context["toctree"]

    def toctree(**options: Any) -> Any:
        kept = app.env.tocs
        app.env.tocs = _titles(app.env)
        try:
            return whole(**options)
        finally:
            app.env.tocs = kept

    context["toctree"] = toctree


def _titles(env: Any) -> dict[str, nodes.bullet_list]:
    """The contents of each page without its headings: its title, and the pages below it."""
    found: dict[str, nodes.bullet_list] | None = getattr(env, "titles_alone", None)
    if found is None:
        found = env.titles_alone = {}
        for page, contents in env.tocs.items():
            item = nodes.list_item("", *(x.deepcopy() for x in contents.children[0].children[:1]))
            below = [x.deepcopy() for x in contents.findall(addnodes.toctree)]
            if below:
                item += nodes.bullet_list("", *below)
            found[page] = nodes.bullet_list("", item)
    return found
