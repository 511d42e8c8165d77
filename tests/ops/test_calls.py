"""What is imported by the first call of an operation on tensors."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

THREADS = """
import threading
import torch
import tilepipe as tp

start = threading.Barrier(6)
failures = []


def work(number):
    x = torch.full((1, 16, 1, 64), float(number), dtype=torch.bfloat16)
    start.wait()
    try:
        assert bool((tp.ops.attention(x, x, x) == number).all())
        assert bool((tp.ops.matmul(x[0, :, 0], x[0, :, 0].t()) == 64 * number**2).all())
    except BaseException as error:
        failures.append(repr(error))


threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(failures)
"""


@pytest.mark.slow
def test_the_first_calls_of_a_process_may_come_from_several_threads() -> None:
    """Each finds the whole module, not what another thread has imported so far."""
    found = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=240, check=True
    )
    assert found.stdout == "[]\n", found.stdout
