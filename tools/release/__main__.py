"""`python -m tools.release [VERSION ...]`: builds an sdist and, from it, a wheel into build/dist,
and tries the wheel in a clean environment of each Python that this machine has, or of those that
are named; `this` is the one that runs this.

Of a Python that is not there, the dependencies are resolved: each must have a wheel for it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
KERNEL = re.compile(r"<!-- (\w+\.py) -->\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
DIST = ROOT / "build" / "dist"


def main(named: Sequence[str]) -> None:
    """Builds, looks into the wheel, and tries it."""
    this = ".".join(map(str, sys.version_info[:2]))
    versions = [this if version == "this" else version for version in named] or PYTHONS
    if unknown := [version for version in versions if not re.fullmatch(r"3\.\d+", version)]:
        raise SystemExit(f"not a version of Python, such as 3.12, or `this`: {', '.join(unknown)}")
    wheel = build()
    complain_of_missing_files(wheel)
    with ThreadPoolExecutor(2) as pool:
        tried = list(pool.map(lambda version: try_on(version, wheel), versions))
    print(
        *(f"Python {version}: {said}" for version, said in zip(versions, tried, strict=True)),
        sep="\n",
    )


def build() -> Path:
    """The wheel, built from the sdist as pip builds one."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    (wheel,) = DIST.glob("*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir())
    return wheel


def complain_of_missing_files(wheel: Path) -> None:
    """The wheel has every file of the package that is in the tree."""
    there = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "tilepipe").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    } | {"pytest_tilepipe.py"}
    if wanted - there:
        raise SystemExit(f"{wheel.name} lacks {', '.join(sorted(wanted - there))}")


def interpreter(version: str) -> Path | None:
    """A Python of this version: on the path, or one of pyenv's, whose shims need not work."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = shutil.which(f"python{version}")
    for path in [*([Path(found)] if found else []), *root.glob(f"{version}.*/bin/python")]:
        asked = subprocess.run(
            [str(path), "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.stdout.strip() == version:
            return path
    return None


def try_on(version: str, wheel: Path) -> str:
    """Installs the wheel in a new environment of a Python, and runs and checks the README's kernel
    there; in words, what was done.
    """
    python = interpreter(version)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if python is None:
            only = ["--only-binary=:all:", "--python-version", version, "--target", folder / "x"]
            run(*PIP, "install", "--dry-run", "--ignore-installed", *only, wheel)
            return "not on this machine, and not tried; its dependencies have wheels for it"
        run(python, "-m", "venv", folder / "venv")
        programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        run(programs / "python", "-m", "pip", "install", "--quiet", wheel)
        ((file, code),) = KERNEL.findall((ROOT / "README.md").read_text(encoding="utf-8"))
        (folder / file).write_text(code, encoding="utf-8")
        run(programs / "python", "-W", "error", file, cwd=folder)
        run(programs / "tilepipe", "check", f"{file}:program", cwd=folder)
        run(programs / "tilepipe", "demo", cwd=folder)
        run(programs / "tilepipe", "check", "gemm_stream_k", cwd=folder)  # CTAs that wait for flags
    return "installed; the README's kernel runs; it, the demo and gemm_stream_k are verified"


PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def run(*words: object, cwd: Path = ROOT) -> None:
    """Runs a command; its output is shown where it fails."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}")


if __name__ == "__main__":
    main(sys.argv[1:])
