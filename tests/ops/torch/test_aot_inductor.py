"""AOTInductor takes the operators: a package that it has compiled calls them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

_MODULE = """
import sys
import torch
import tilepipe as tp

class Doubled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64, 64, dtype=torch.bfloat16))

    def forward(self, x):
        return tp.ops.matmul(x, self.weight).float() * 2

x = torch.arange(32 * 64).reshape(32, 64).remainder(7).to(torch.bfloat16)
with torch.no_grad():
    exported = torch.export.export(Doubled(), (x,))
    torch._inductor.aoti_compile_and_package(exported, package_path=sys.argv[1])
    torch.save((x, Doubled()(x)), sys.argv[2])
"""
_LOADED = """
import sys
import torch

try:
    torch._inductor.aoti_load_package(sys.argv[1])
except RuntimeError as error:
    print(str(error).splitlines()[0])
import tilepipe.ops.registered

x, expected = torch.load(sys.argv[2])
with torch.no_grad():
    print(torch.equal(torch._inductor.aoti_load_package(sys.argv[1])(x), expected))
"""


@pytest.mark.slow
@pytest.mark.thorough  # a minute, most of it PyTorch's
@pytest.mark.skipif(shutil.which("c++") is None, reason="AOTInductor needs a C++ compiler")
def test_a_package_calls_the_operator_in_another_process(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("module.pt2", "tensors.pt")]
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}

    def run(code: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "ignore", "-c", code, *files]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    done = run(_MODULE)
    assert done.returncode == 0, done.stderr
    unknown, right = run(_LOADED).stdout.splitlines()
    assert "Could not find schema for tilepipe::matmul" in unknown
    assert right == "True"
