"""The examples, the README and the blocks of the pages on the GPU: each verifies the GPU's results
itself.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.examples.ladder import EXAMPLES, NAMES, arch, load
from tilepipe.cuda.runtime import driver
from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.program import TensorArg, architecture
from tools.docs import shown
from tools.docs.readme import ROOT, blocks, run

pytestmark = pytest.mark.gpu


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """`program.run()` simulates, undoes what that wrote, launches, and compares; what it returns is
    the simulator's. Counts launches by kernel. A kernel with ops of Blackwell is launched on such a
    GPU.
    """
    counted: Counter[str] = Counter()
    simulate = tp.Program.run

    def launched(program: tp.Program, *args: Any, **options: Any) -> Any:
        arrays = {
            name: x.array
            for name, x in program.launch_args.args.items()
            if isinstance(x, TensorArg)
        }
        before = {name: array.copy() for name, array in arrays.items()}
        result = simulate(program, *args, **options)
        if architecture(program.kernel) == "sm_100a" != driver.chip().arch:
            return result
        simulated = {name: arrays[name].copy() for name in tensor_uses(program.kernel)[0]}
        for name, array in arrays.items():
            array[...] = before[name]
        program.launch()
        for name, values in simulated.items():
            got, want = arrays[name].astype(np.float64), values.astype(np.float64)
            np.testing.assert_allclose(
                got, want, rtol=1e-2, atol=1e-2 * float(np.abs(want).max(initial=0))
            )
        counted[program.kernel.name] += 1
        return result

    monkeypatch.setattr(tp.Program, "run", launched)
    return counted


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_example(
    name: str, seed: int, on_gpu: Counter[str], capsys: pytest.CaptureFixture[str]
) -> None:
    if arch(name) != driver.chip().arch:
        pytest.skip(f"rung {name[:2]} is for {arch(name)}, this GPU is {driver.chip().arch}")
    load(EXAMPLES / f"{name}.py")(seed)
    assert "right" in capsys.readouterr().out.splitlines()[0]
    assert on_gpu.total() >= 1


def test_readme(on_gpu: Counter[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel, *_ = blocks(ROOT / "docs" / "tutorial" / "gemm.md", "python")
    run(kernel, tmp_path / "gemm.py")
    assert "right" in capsys.readouterr().out
    assert on_gpu == {"gemm": 1}


@pytest.mark.parametrize(
    "page",
    [
        "reference/language",
        "reference/pipelines",
        "reference/staged-rings",
        "reference/schedulers",
        "how-to/split-k-and-flags",
        "how-to/transpose",
        "internals/architecture",
    ],
)
def test_page(
    page: str, on_gpu: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where a block writes files
    path = ROOT / "docs" / f"{page}.md"
    for name, code in shown.files(path.read_text(encoding="utf-8")).items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    run("\n".join(blocks(path, "python")), tmp_path / f"{path.stem}_page.py")
    assert on_gpu.total() >= 1
