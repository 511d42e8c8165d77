"""What `tilepipe bench attention_backward` measures, and how results are judged; the launches need
a GPU.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import tilepipe as tp
from tests.support.tracing import refused
from tilepipe.registry.attention_backward import ATTENTION_BACKWARD, extents

bench = pytest.importorskip("tilepipe.bench.attention_backward", exc_type=ImportError)
flash_attention_4 = pytest.importorskip("tilepipe.bench.flash_attention_4", exc_type=ImportError)
torch = pytest.importorskip("torch", exc_type=ImportError)


def test_contests() -> None:
    found = bench.contests({}, [], tp.H200, 0)
    assert len(found) == 12
    assert [x.problem for x in found[:2]] == ["D=128 full S=4096", "D=128 full S=8192"]
    assert found[0].flop == 2.5 * 4 * 4096**2 * 128 * 16 * 4
    (one,) = bench.contests(
        {"s_q": 300, "s_kv": 300, "causal": True, "deterministic": True, "heads": 1}, [], tp.H200, 0
    )
    assert one.problem.endswith("in turns")
    assert one.flop == 2.5 * 4 * 128 * 300 * 301 / 2
    with refused(tp.BindError, "--shapes of attention_backward takes standard or quick"):
        bench.contests({}, ["8x300"], tp.H200, 0)
    with refused(tp.BindError, "no peer with align"):
        bench.contests({"align": "first"}, [], tp.H200, 0)


@pytest.mark.parametrize("causal", [False, True])
def test_pytorchs_gradients_are_right_and_others_are_not(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "DEVICE", "cpu")
    monkeypatch.setattr(bench, "ROWS", 64)
    given = {"batch": 2, "s_q": 150, "s_kv": 150, "heads": 4, "kv_heads": 2, "d": 64}
    settings, _ = ATTENTION_BACKWARD.configure({**given, "causal": causal}, None)
    operands = bench.Operands(extents(settings), causal, 0, sets=2)

    def gradients(i: int) -> Any:
        leaves = [x[i].float().requires_grad_() for x in (operands.q, operands.k, operands.v)]
        turned = (x.transpose(1, 2) for x in leaves)
        out = torch.nn.functional.scaled_dot_product_attention(
            *turned, is_causal=causal, enable_gqa=True
        )
        dout = operands.dout[i].float().transpose(1, 2)
        return tuple(x.to(torch.bfloat16) for x in torch.autograd.grad(out, leaves, dout))

    operands.results["PyTorch"] = [gradients(0), gradients(1)]
    assert operands.check("PyTorch", 0).right
    assert operands.check("PyTorch", 1).right
    for changed in range(3):
        operands.results["PyTorch"] = [gradients(0)]
        operands.results["PyTorch"][0][changed].mul_(1.01)
        assert not operands.check("PyTorch", 0).right
    operands.wipe()
    assert not operands.check("PyTorch", 0).right


# A stand-in for FlashAttention, which notes what it is asked for and in which process.
FLASH_ATTENTION = """
import os, pathlib, torch
def flash_attn_func(q, k, v, causal, deterministic):
    name = f"{q.shape[2]}-{k.shape[2]}-{q.shape[3]}-{causal}-{deterministic}-{q.dtype}"
    cached = os.environ.get("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED")
    pathlib.Path(__file__).parent.joinpath(name).write_text(f"{cached} {os.getpid()}")
    assert q.shape[2] != 5, "no kernel for 5 heads"
    return (q.sum() + k.sum() + v.sum()).expand(q.shape),
"""


@pytest.mark.slow
def test_forms_of_flash_attention_are_compiled_in_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(flash_attention_4, "DEVICE", "cpu")
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # PyTorch is imported anew in each process
    package = tmp_path / "flash_attn" / "cute"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()
    (package / "interface.py").write_text(FLASH_ATTENTION)
    monkeypatch.delenv(flash_attention_4.CACHE, raising=False)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(str(tmp_path))
    one, wrong = (
        flash_attention_4.Form(heads, 1, 64, heads == 1, False, "bfloat16") for heads in (1, 5)
    )
    flash_attention_4.compile_ahead([one])  # alone: where it is measured
    assert flash_attention_4.CACHE not in os.environ
    flash_attention_4.compile_ahead([wrong, one, wrong])  # what fails is no error here
    made = {x.name: x.read_text().split() for x in package.glob("*-*")}
    assert sorted(made) == [f"{h}-1-64-{h == 1}-False-torch.bfloat16" for h in (1, 5)]
    assert all(cached == "1" and int(by) != os.getpid() for cached, by in made.values())
