"""Tensors of PyTorch, and Python in a process of its own, for the tests of launching."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np

from tests.gpu.small import numbers
from tools.docs.readme import ROOT

N = 100_000


def tensor(x: Any) -> Any:
    """A copy on the GPU."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(x)).cuda()


def pair(seed: int = 0, n: int = N) -> tuple[Any, Any, Any]:
    """(numbers, the same on the GPU, zeros on the GPU)"""
    x = numbers(n, seed)
    return x, tensor(x), tensor(np.zeros(n, np.int32))


def child(code: str, **environment: str) -> str:
    """The output of Python code that runs in a process of its own."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"PYTHONPATH": path} | environment
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=env
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
