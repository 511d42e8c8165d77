"""The README as PyPI shows it: hatchling asks this hook for the text when it builds.

PyPI has none of the repository's files, so links to them are made absolute: to
`TILEPIPE_REPOSITORY_URL`, where the environment of the build names one (a folder of the code host,
such as https://host/owner/tilepipe/blob/v0.1.0). Without it they become plain text: no link is
better than one that leads nowhere.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "TILEPIPE_REPOSITORY_URL"
_LINK = re.compile(r"\[([^]]+)\]\((?!\w+:|#)([^)\s]+)\)")
_COMMENT = re.compile(r"<!-- .*? -->\n\n?", re.DOTALL)


def readme(text: str, url: str | None) -> str:
    """The text with absolute links, or without the links that lead into the repository."""

    def turned(match: re.Match[str]) -> str:
        words, target = match.groups()
        return f"[{words}]({url.rstrip('/')}/{target})" if url else words

    return _LINK.sub(turned, _COMMENT.sub("", text))


class Hook(MetadataHookInterface):  # type: ignore[misc] # hatchling is not asked for its types
    """What `[tool.hatch.metadata.hooks.custom]` names."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Sets the readme, and the project's URLs where there is one."""
        url = os.environ.get(VARIABLE)
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme(text, url)}
        if url:
            metadata["urls"] = {"Documentation": f"{url.rstrip('/')}/docs/README.md", "Source": url}
