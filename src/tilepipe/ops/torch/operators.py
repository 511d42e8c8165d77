"""The operators `tilepipe::NAME`, which PyTorch's dispatcher, compiler and autograd see."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable

import torch

from tilepipe.ops.types import Settings

# A plain Library costs half of torch.library.custom_op for each call: no checks of aliasing, no
# wrappers.
library = torch.library.Library("tilepipe", "FRAGMENT")


def register(
    name: str, schema: str, kernel: Callable[..., object], fake: Callable[..., object]
) -> torch._ops.OpOverload:
    """Registers an operator.

    Args:
        schema: its parameters and results. kernel: its work on CUDA tensors.
        fake: shapes and dtypes of its results, for tensors without data.
    """
    library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(name, kernel, "CUDA")
    torch.library.register_fake(f"tilepipe::{name}", fake, lib=library)
    return getattr(torch.ops.tilepipe, name).default


def settings_text(settings: Settings) -> str:
    """Settings as an argument of an operator."""
    return repr(settings)


@functools.lru_cache(maxsize=256)
def settings_of(text: str) -> Settings:
    """The settings that `settings_text` has written."""
    found: Settings = ast.literal_eval(text)
    return found
