"""FlashAttention 4's gradients, compiled ahead. A form takes half a minute of one core, so those of
a run are compiled side by side, in processes that leave them in FlashAttention's cache on disk.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import torch

from tilepipe.bench.attention import DEVICE

CACHE = "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED"  # read when flash_attn.cute is imported
TOKENS = 1024  # of the problem that is solved for its kernels: more than one tile


class Form(NamedTuple):
    """What FlashAttention compiles anew for. `dtype`: its name in PyTorch."""

    heads: int
    kv_heads: int
    d: int
    causal: bool
    deterministic: bool
    dtype: str


def compile_ahead(forms: Iterable[Form]) -> None:
    """Compiles the kernels of forms, forward and backward, where FlashAttention 4 is installed. A
    form that fails says so when it is measured.
    """
    try:
        installed = importlib.util.find_spec("flash_attn.cute") is not None
    except ModuleNotFoundError:
        installed = False
    different = set(forms)
    if not installed or len(different) < 2:  # one form is compiled where it is measured
        return
    os.environ.setdefault(CACHE, "1")
    processes = min(len(different), os.cpu_count() or 1)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for done in [pool.submit(_solve, form, DEVICE) for form in different]:
            done.exception()


def _solve(form: Form, device: str) -> None:
    function = importlib.import_module("flash_attn.cute.interface").flash_attn_func
    kind = getattr(torch, form.dtype)
    q, k, v = (
        torch.zeros(1, TOKENS, heads, form.d, dtype=kind, device=device, requires_grad=True)
        for heads in (form.heads, form.kv_heads, form.kv_heads)
    )
    made = function(q, k, v, causal=form.causal, deterministic=form.deterministic)
    out = made[0] if isinstance(made, tuple) else made
    torch.autograd.grad(out, (q, k, v), torch.zeros_like(out))
