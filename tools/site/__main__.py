"""`python -m tools.site [FOLDER]` builds the site: pages into FOLDER/pages, HTML into FOLDER/site.

A warning of Sphinx is an error: a link that leads nowhere, a page that no table of contents has.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.site import api
from tools.site.stage import ROOT, Stage


def build(folder: Path) -> int:
    """Stages the pages and builds them; the exit code of Sphinx."""
    pages, site = folder / "pages", folder / "site"
    Stage(pages).fill()
    api.write(pages / "api")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-a", "-j", "auto"]
    command += ["-c", str(Path(__file__).parent), "-d", str(folder / "trees"), str(pages)]
    return subprocess.run([*command, str(site)], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build"
    code = build(target)
    if code == 0:
        print(f"{target / 'site' / 'index.html'}")
    sys.exit(code)
