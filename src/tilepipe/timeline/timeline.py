"""The timeline of a run, which can be looked at."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from tilepipe.errors import BindError
from tilepipe.host_arguments import shown
from tilepipe.timeline.page import page
from tilepipe.timeline.record import Record
from tilepipe.timeline.trace import trace


class Timeline(Record):
    """When things happened in a simulated run: see `Record` for its data and their sums."""

    def trace(self) -> dict[str, Any]:
        """The Trace Event Format, for ui.perfetto.dev: what `json.dumps` writes to a file."""
        return trace(self)

    def html(self, beside: Timeline | None = None) -> str:
        """A page that shows it, and needs nothing but a browser. `beside`: another timeline, on
        the same page and the same axis of time.

        Raises:
            BindError: `beside` is no timeline.
        """
        if not isinstance(beside, Timeline | None):
            raise BindError(
                "beside is another timeline, which program.run(timeline=True).timeline is, or None;"
                f" got {shown(beside)}"
            )
        return page([self] if beside is None else [self, beside])

    def _repr_html_(self) -> str:
        """The page in a frame, which is what a notebook shows of it."""
        return (
            f'<iframe srcdoc="{escape(self.html())}" style="width:100%;height:70vh;border:0"'
            f' title="{escape(repr(self))}"></iframe>'
        )

    def save(self, path: str | Path, *, beside: Timeline | None = None) -> None:
        """Writes `html()` to a file that ends in .html, `trace()` to one that ends in .json.

        Raises:
            BindError: the name ends in something else, `beside` is given for a trace or is no
                timeline, or the file cannot be written.
        """
        if not isinstance(path, str | Path):
            raise BindError(f"a timeline is written to a file, by its name; got {shown(path)}")
        path = Path(path)
        match path.suffix.lower():
            case ".html":
                text = self.html(beside)
            case ".json":
                if beside is not None:
                    raise BindError(f"two timelines are written as .html, not as {path.name}")
                text = json.dumps(self.trace(), ensure_ascii=False)
            case _:
                raise BindError(
                    f"a timeline is written to a file that ends in .html, a page, or in .json, for"
                    f" ui.perfetto.dev; got {path.name}"
                )
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise BindError(f"cannot write {path}: {error.strerror}") from None
