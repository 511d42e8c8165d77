"""compute-sanitizer over each family of kernels, where it can attach to the device: memcheck and
synccheck for all, racecheck for kernels whose barriers it knows.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.sanitized import KERNELS
from tools.docs.readme import ROOT

pytestmark = pytest.mark.gpu
PLACES = ("/usr/local/cuda/bin", "/opt/cuda/bin")
NO_REASON = "it wrote no summary"


@functools.cache
def sanitizer() -> str | None:
    """The path of compute-sanitizer."""
    return shutil.which(
        "compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES])
    )


def watched(tool: str, name: str, timeout: int = 150) -> str:
    """The tool's report on a family; skips where it cannot watch this device."""
    program = sanitizer()
    if program is None:
        pytest.skip("not possible: compute-sanitizer is not installed")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [
        program,
        "--tool",
        tool,
        "--launch-timeout",
        "60",
        sys.executable,
        "-m",
        "tests.gpu.sanitized",
        name,
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"not possible: {tool} had not ended after {timeout} s")
    said = done.stdout + done.stderr
    lines = [line.strip("= \n") for line in said.splitlines() if line.startswith("=========")]
    if not any("SUMMARY" in line for line in lines):
        assert "verified" in said or lines, said[-3000:]
        pytest.skip(
            "not possible: "
            f"{next((x for x in lines if re.search('rror|nable|upport|annot', x)), NO_REASON)}"
        )
    refused = [
        x
        for x in lines
        if re.search(
            "not supported|insufficient|Unable to|Internal error|before first instrumented", x
        )
    ]
    if refused:
        pytest.skip(f"not possible: {refused[0]}")
    assert "verified" in said, said[-3000:]
    return "\n".join(lines)


@functools.cache
def refusal(tool: str) -> str:
    """The reason why the tool cannot watch this device, tested with the smallest family; empty if
    it can.
    """
    try:
        watched(tool, "turns", 60)
    except pytest.skip.Exception as reason:
        return str(reason)
    return ""


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("tool", ["memcheck", "synccheck"])
def test_no_errors(tool: str, name: str) -> None:
    if refusal(tool):
        pytest.skip(refusal(tool))
    report = watched(tool, name)
    assert "ERROR SUMMARY: 0 errors" in report, report[-3000:]


def test_no_hazards_between_ordinary_accesses() -> None:
    """racecheck does not follow mbarriers and TMA; kernels with neither must be free of hazards."""
    if refusal("racecheck"):
        pytest.skip(refusal("racecheck"))
    report = watched("racecheck", "shared memory")
    assert "RACECHECK SUMMARY: 0 hazards" in report, report[-3000:]


def test_the_families_run_by_themselves(tmp_path: Path) -> None:
    """The watched kernels are right without the tools."""
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "TILEPIPE_CACHE_DIR": str(tmp_path / "cache"),
    }
    for name in KERNELS:
        done = subprocess.run(
            [sys.executable, "-m", "tests.gpu.sanitized", name],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=ROOT,
            env=env,
        )
        assert done.stdout.endswith("verified\n"), f"{name}: {done.stderr[-2000:]}"
