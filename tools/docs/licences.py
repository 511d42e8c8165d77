"""Writes docs/generated/licences.md, the licences of what tilepipe depends on, anew: `python -m
tools.docs.licences`, in an environment that has all extras.

The names are those of pyproject.toml; licences are what the installed packages say of themselves.
Of a package that is not installed, the page keeps what it has.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement

from tools.docs.readme import ROOT

PAGE = ROOT / "docs" / "generated" / "licences.md"
ROW = re.compile(r"^\| ([\w.-]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
HEAD = """# Licences of dependencies

tilepipe is under Apache-2.0, and its wheel holds its own code alone. What follows is installed
beside it, each package under its own licence: *always*, or with the extra that is named. Licences
are what the packages say of themselves. `python -m tools.docs.licences` writes this page, and a
test compares it with what is installed.

| package | licence | comes with |
|---|---|---|
"""
# What a package's classifiers and texts say -> the SPDX name.
_SPDX = (
    (r"BSD[ -]3|3-Clause", "BSD-3-Clause"),
    (r"BSD[ -]2|2-Clause", "BSD-2-Clause"),
    (r"BSD", "BSD-3-Clause"),
    (r"Apache", "Apache-2.0"),
    (r"MIT", "MIT"),
    (r"Mozilla|MPL", "MPL-2.0"),
    (r"ISC", "ISC"),
    (r"Public Domain", "public domain"),
    (r"Python Software", "PSF-2.0"),
    (r"GPL|GNU General", "GPL"),
    (r"NVIDIA|LicenseRef-NVIDIA", "NVIDIA, proprietary"),
)


def direct() -> dict[str, list[str]]:
    """Each package that pyproject.toml names, and the extras that ask for it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {"always": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, list[str]] = {}
    for extra, requirements in asked.items():
        for requirement in requirements:
            name = Requirement(requirement).name.lower()
            if name != "tilepipe":
                found.setdefault(name, []).append(extra)
    return found


def needed() -> dict[str, list[str]]:
    """The same, and what those that are installed need in turn."""
    found = direct()
    waiting = list(found)
    while waiting:
        name = waiting.pop(0)
        for other in _requirements(name):
            known = found.setdefault(other, [])
            new = [extra for extra in found[name] if extra not in known]
            if new:
                known += new
                waiting.append(other)
    return {name: sorted(found[name], key=lambda x: (x != "always", x)) for name in found}


def _requirements(name: str) -> Iterator[str]:
    try:
        required = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return
    for requirement in map(Requirement, required):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name.lower().replace("_", "-")


def licence(name: str) -> str | None:
    """The licence that an installed package names; None where it is not installed."""
    try:
        said = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    if said["License-Expression"]:
        return str(said["License-Expression"])
    texts = [x for x in said.get_all("Classifier") or [] if x.startswith("License ::")]
    for kind in (texts, [str(said["License"] or "")[:200]]):
        found = [next((spdx for p, spdx in _SPDX if re.search(p, text)), "") for text in kind]
        if any(found):
            return ", ".join(dict.fromkeys(filter(None, found)))
    return "not stated"


def page(kept: str) -> str:
    """The page. `kept`: the text that it has."""
    known = {name: said for name, said, _ in ROW.findall(kept)}
    packages = sorted(needed().items(), key=lambda x: (x[1][0] != "always", x[0]))
    rows = [
        f"| {name} | {licence(name) or known.get(name, 'not installed')} | {', '.join(extras)} |"
        for name, extras in packages
    ]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    missing = [name for name in direct() if licence(name) is None]
    assert not missing, f"not installed: {', '.join(missing)}"
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""), "utf-8")
