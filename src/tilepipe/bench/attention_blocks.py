"""Attention under a random block mask in GPU memory beside PyTorch's FlexAttention, which is given
the same blocks. Our time has the kernel that lists the tiles of keys in it; FlexAttention's lists
are made once, before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

import tilepipe as tp
from tilepipe.bench import attention, timing
from tilepipe.bench.beside import OURS, Contest, Sides
from tilepipe.bench.operands import in_turn
from tilepipe.kernels.attention import reference, sm90_bind as kernel
from tilepipe.kernels.attention.block_mask import bind_lists, lists_shape
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.scores import Window
from tilepipe.kernels.attention.validation import Extents
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.attention import ATTENTION, extents
from tilepipe.registry.block_masks import RandomBlocks, parsed

FLEX = "FlexAttention"


class BlockOperands(attention.Operands):
    """Operands with a block mask (batch, heads, blocks of queries, blocks of keys), the same for
    all sets.
    """

    def __init__(
        self,
        found: Extents,
        causal: bool,
        blocks: RandomBlocks,
        seed: int,
        sets: int | None = None,
    ) -> None:
        super().__init__(found, causal, seed, sets)
        self.block, self.host_mask = blocks.block, drawn(found, blocks, seed)
        self.mask = torch.from_numpy(self.host_mask).to(attention.DEVICE)

    @property
    def options(self) -> reference.AttentionOptions:
        """The results of float64, to compare with."""
        mask = {"block_mask": self.host_mask, "block_size": self.block}
        return reference.AttentionOptions(self.causal, scale=self.found.scale, **mask)

    def ours(self, cfg: AttentionConfig, name: str = OURS) -> timing.Launch:
        """Our two kernels: that which lists tiles of keys, and attention."""
        found, seen = self.found, Window.of(self.causal, None)
        self._allocate(name)
        q, k, v, out = (TensorView(x[0]) for x in (self.q, self.k, self.v, self.results[name]))
        mask = TensorView(self.mask)
        lists = torch.empty(
            lists_shape(mask, found, cfg), dtype=torch.int32, device=attention.DEVICE
        )
        of_lists = bind_lists(mask, TensorView(lists), found, seen, cfg, self.block).launcher()
        counter, given = attention.counter_of(cfg, self.sets)
        options: dict[str, Any] = {"causal": self.causal, "counter": counter}
        launcher = kernel.bind(
            q, k, v, out, None, cfg, key_lists=TensorView(lists), **options
        ).launcher()
        several = {"mask": [self.mask] * self.sets, "lists": [lists] * self.sets}
        tensors = {"q": self.q, "k": self.k, "v": self.v, "out": self.results[name]}
        first = in_turn(of_lists, several)
        second = in_turn(launcher, tensors | given | {"key_lists": several["lists"]})

        def launch(i: int) -> None:
            first(i)
            second(i)

        return launch

    def flex(self) -> Callable[[int], None]:
        """FlexAttention, compiled, which reads the same memory.

        Raises:
            ImportError, RuntimeError: this PyTorch has none, or it cannot solve the problem.
        """
        from torch.nn.attention.flex_attention import BlockMask, flex_attention

        whole, partial = _split(self.host_mask, self.found, self.causal, self.block)
        device = attention.DEVICE
        lists = [_listed(torch.from_numpy(x).to(device)) for x in (partial, whole)]
        mask_mod = _causal_from(self.found.s_kv - self.found.s_q) if self.causal else None
        blocks = BlockMask.from_kv_blocks(
            *lists[0],
            *lists[1],
            BLOCK_SIZE=self.block,
            mask_mod=mask_mod,
            seq_lengths=(self.found.s_q, self.found.s_kv),
        )
        function = torch.compile(flex_attention)
        results = self.results[FLEX] = [None] * self.sets
        shared = self.found.group > 1

        def launch(i: int) -> None:
            q, k, v = (x[i].transpose(1, 2) for x in (self.q, self.k, self.v))
            made = function(q, k, v, block_mask=blocks, enable_gqa=shared)
            results[i] = made.transpose(1, 2)

        return launch


def _causal_from(diagonal: int) -> Callable[..., Any]:
    def seen(b: Any, h: Any, query: Any, key: Any) -> Any:
        return key <= query + diagonal

    return seen


def drawn(found: Extents, blocks: RandomBlocks, seed: int) -> Any:
    """The block mask of a seed."""
    return blocks.drawn(found, np.random.default_rng(seed))


def pairs(found: Extents, causal: bool, block: tuple[int, int]) -> Any:
    """(blocks of queries, blocks of keys): how many keys queries see in each block, in all."""
    first, stop = Window.of(causal, None).seen(found.s_q, found.s_kv)
    starts = np.arange(0, found.s_kv, block[1])
    each = np.minimum(stop[:, None], starts + block[1]) - np.maximum(first[:, None], starts)
    return np.add.reduceat(np.maximum(each, 0), np.arange(0, found.s_q, block[0]))


def _split(mask: Any, found: Extents, causal: bool, block: tuple[int, int]) -> tuple[Any, Any]:
    """The blocks of a mask that queries see whole, and those that they see in part."""
    seen = pairs(found, causal, block)
    sizes = pairs(found, False, block)
    return mask & (seen == sizes), mask & (seen > 0) & (seen < sizes)


def _listed(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How many blocks of keys each block of queries has, and which, as FlexAttention takes them."""
    order = torch.argsort((~mask).to(torch.int8), dim=-1, stable=True)
    return mask.sum(-1).to(torch.int32), order.to(torch.int32)


def contests(
    given: Mapping[str, Any], texts: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench attention -s block_mask=...` measures: the same problems as without.

    Raises:
        BindError: settings or texts that name no problem.
    """
    rest = {name: value for name, value in given.items() if name != "block_mask"}
    tiles = {name: value for name, value in rest.items() if name in ATTENTION.tiles}
    wanted = (
        {name: value for name, value in settings.items() if name not in ATTENTION.tiles}
        | tiles
        | {"block_mask": given["block_mask"]}
        for settings in attention.problems(rest, texts, seed)
    )
    return [contest(ATTENTION.configure(settings, chip)[0], seed) for settings in wanted]


def contest(settings: Mapping[str, Any], seed: int) -> Contest:
    """The problem that all settings state."""
    found, causal, cfg = extents(settings), settings["causal"], ATTENTION.config(settings)
    blocks = parsed(settings["block_mask"])
    assert isinstance(cfg, AttentionConfig)
    assert blocks is not None

    def made() -> BlockOperands:
        return BlockOperands(found, causal, blocks, seed)

    def opened() -> Sides:
        operands = made()
        launches, missing = {OURS: operands.ours(cfg)}, {}
        try:
            flex = operands.flex()
            flex(0)
            torch.cuda.synchronize()
            launches[FLEX] = flex
        except (ImportError, RuntimeError, TypeError) as error:
            missing[FLEX] = str(error).splitlines()[0]
        text = attention.config_text(cfg)
        return Sides(text, operands.sets, launches, operands.wipe, operands.check, missing)

    computed = drawn(found, blocks, seed) * pairs(found, causal, blocks.block)
    text = f"{attention.problem_text(found, causal)} block_mask={settings['block_mask']}"
    work = 2.0 * (found.d + found.d_v) * float(computed.sum())
    return Contest(text, settings, work, opened, operands=made)
