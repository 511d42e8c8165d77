"""Attention of packed sequences in GPU memory beside as much work in one batch, whose sequences
have one length, and beside PyTorch's `varlen_attn` (FlashAttention 2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import tilepipe as tp
from tilepipe.bench import attention, timing
from tilepipe.bench.beside import OURS, Contest, Sides
from tilepipe.bench.operands import in_turn
from tilepipe.bench.report import Check
from tilepipe.bench.sampled import SampledRows
from tilepipe.errors import BindError
from tilepipe.kernels.attention import reference, sm90_bind as kernel
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.packed_reference import bounds_of
from tilepipe.kernels.attention.validation import Extents
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.attention import ATTENTION, extents
from tilepipe.registry.lengths import parsed

BATCH, VARLEN = "one batch", "FA2 varlen"
SAMPLED = 4  # pairs of a sequence and a head, of which a sample of rows is compared with float64
# of the standard problems: 16 sequences of 1,024 to 4,096, in no order, and 2 of 16,384
MIXED = tuple(128 * x for x in (20, 8, 32, 14, 26, 16, 30, 10, 24, 12, 18, 28, 22, 32, 8, 19))
SUITE = (MIXED, (16384, 16384))


class PackedOperands:
    """`sets` sets of standard normal operands (total, heads, d), and results by the name of who
    writes them.
    """

    def __init__(
        self, lengths: list[tuple[int, int]], found: Extents, causal: bool, seed: int, sets: int
    ) -> None:
        self.lengths, self.found, self.causal, self.sets = lengths, found, causal, sets
        self.host_bounds = [bounds_of(list(x)) for x in zip(*lengths, strict=True)]
        self.bounds = [torch.from_numpy(x).to(attention.DEVICE) for x in self.host_bounds]
        generator = torch.Generator(attention.DEVICE).manual_seed(seed)
        dtype = getattr(torch, found.dtype.name)

        def drawn(*shape: int) -> list[Any]:
            made = (
                torch.randn(shape, generator=generator, device=attention.DEVICE)
                for _ in range(sets)
            )
            return [x.to(dtype) for x in made]

        self.q = drawn(found.s_q, found.heads, found.d)
        self.k = drawn(found.s_kv, found.kv_heads, found.d)
        self.v = drawn(found.s_kv, found.kv_heads, found.d_v)
        self.results: dict[str, list[Any]] = {}
        self._seed = seed

    def ours(self, cfg: AttentionConfig) -> timing.Launch:
        """Our kernel, compiled and loaded."""
        if OURS not in self.results:
            self.results[OURS] = [x.new_empty((*x.shape[:-1], self.found.d_v)) for x in self.q]
        given = (x[0] for x in (self.q, self.k, self.v, self.results[OURS]))
        q, k, v, out, *bounds = (TensorView(x) for x in (*given, *self.bounds))
        counter, drawn_from = attention.counter_of(cfg, self.sets)
        launcher = kernel.bind(
            q,
            k,
            v,
            out,
            None,
            cfg,
            causal=self.causal,
            cu_seqlens_q=bounds[0],
            cu_seqlens_k=bounds[1],
            counter=counter,
        ).launcher()
        tensors = {"q": self.q, "k": self.k, "v": self.v, "out": self.results[OURS]} | drawn_from
        numbers = {"q_bounds": self.bounds[0], "k_bounds": self.bounds[1]}
        return in_turn(launcher, tensors | {name: [x] * self.sets for name, x in numbers.items()})

    def varlen(self) -> Callable[[int], None]:
        """PyTorch's, which reads the same memory.

        Raises:
            ImportError: this PyTorch has none.
        """
        from torch.nn.attention.varlen import varlen_attn

        results = self.results[VARLEN] = [None] * self.sets
        longest = [max(x) for x in zip(*self.lengths, strict=True)]

        def launch(i: int) -> None:
            operands = self.q[i], self.k[i], self.v[i]
            results[i] = varlen_attn(*operands, *self.bounds, *longest, is_causal=self.causal)

        return launch

    def wipe(self) -> None:
        """Makes every result NaN."""
        attention.make_nan(self.results)

    def check(self, name: str, i: int) -> Check:
        """A sample of a result for set `i` beside float64: rows of some sequences and heads, the
        first and the last of these among them.
        """
        rng, found = np.random.default_rng(self._seed), self.found
        options = reference.AttentionOptions(self.causal, scale=found.scale)
        able = [n for n, (queries, _) in enumerate(self.lengths) if queries]
        rows_seen = SampledRows()
        for n in rng.choice(able, SAMPLED):
            h, (queries, _) = int(rng.integers(found.heads)), self.lengths[n]
            rows = np.unique([0, queries - 1, *rng.integers(0, queries, attention.SAMPLED_ROWS)])
            at = torch.from_numpy(rows + self.host_bounds[0][n]).to(attention.DEVICE)
            keys = slice(*self.host_bounds[1][n : n + 2])
            parts = self.q[i][at, h], *(x[i][keys, h // found.group] for x in (self.k, self.v))
            q, k, v = (x.double().cpu().numpy() for x in parts)
            want = reference.head(q, k, v, rows, queries, h, options, found.dtype)
            rows_seen.add(self.results[name][i][at, h], want)
        return rows_seen.check()


def same_work(found: Extents, lengths: list[tuple[int, int]]) -> Extents:
    """A batch of as many sequences of one length, with as many scores to within a query's."""
    pairs = sum(queries * keys for queries, keys in lengths)
    length = max(round(float(np.sqrt(pairs / len(lengths)))), 1)
    return replace(found, batch=len(lengths), s_q=length, s_kv=length, sequences=0)


def contests(
    given: Mapping[str, Any], texts: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench attention --shapes packed` measures, or with `-s lengths=...`.

    Raises:
        BindError: settings that no peer has, or both texts and lengths.
    """
    refused = sorted(given.keys() & (attention.UNTIMED | {"batch", "s_q", "s_kv"}))
    if refused or (texts and "lengths" in given):
        what = ", ".join(refused) or "--shapes beside lengths"
        raise BindError(
            f"bench attention of packed sequences has no {what}: it takes --shapes packed or"
            " lengths, and heads, kv_heads, d, causal"
        )
    suite = [given["lengths"]] if "lengths" in given else [",".join(map(str, x)) for x in SUITE]
    heads = {"heads": attention.HEADS, "kv_heads": given.get("heads", attention.HEADS)}
    masks = [given["causal"]] if "causal" in given else [False, True]
    stated = (
        heads | dict(given) | {"lengths": lengths, "causal": causal}
        for lengths in suite
        for causal in masks
    )
    return [contest(_configured(x, chip), chip, seed) for x in stated]


def _configured(stated: Mapping[str, Any], chip: tp.Chip) -> dict[str, Any]:
    return ATTENTION.configure(stated, chip)[0]


def contest(settings: Mapping[str, Any], chip: tp.Chip, seed: int) -> Contest:
    """Packed sequences that all settings state, beside a batch with as much work."""
    found, causal, lengths = extents(settings), settings["causal"], parsed(settings["lengths"])
    cfg = ATTENTION.config(settings)
    assert isinstance(cfg, AttentionConfig)
    batch = same_work(found, lengths)
    names = "batch", "s_q", "s_kv"
    stated = {name: value for name, value in settings.items() if name not in ATTENTION.tiles}
    of_batch = stated | {"lengths": ""} | {name: getattr(batch, name) for name in names}
    batch_cfg = ATTENTION.config(_configured(of_batch, chip))

    def opened() -> Sides:
        beside = attention.Operands(batch, causal, seed)
        packed = PackedOperands(lengths, found, causal, seed, beside.sets)
        launches = {OURS: packed.ours(cfg), BATCH: beside.ours(batch_cfg, BATCH)}
        missing = {}
        try:
            varlen = packed.varlen()
            varlen(0)
            torch.cuda.synchronize()
            launches[VARLEN] = varlen
        except (ImportError, RuntimeError, TypeError) as error:
            missing[VARLEN] = str(error).splitlines()[0]

        def wipe() -> None:
            packed.wipe()
            beside.wipe()

        def check(name: str, i: int) -> Check:
            return beside.check(name, i) if name == BATCH else packed.check(name, i)

        return Sides(attention.config_text(cfg), beside.sets, launches, wipe, check, missing)

    flop = sum(
        attention.flop(replace(found, s_q=queries, s_kv=keys), causal) for queries, keys in lengths
    )

    def alone() -> PackedOperands:
        return PackedOperands(lengths, found, causal, seed, attention.sets_of(batch))

    return Contest(text(found, lengths, causal), settings, flop, opened, operands=alone)


def text(found: Extents, lengths: list[tuple[int, int]], causal: bool) -> str:
    """D, mask, and how many sequences of which lengths."""
    shortest, longest = (end(max(pair) for pair in lengths) for end in (min, max))
    span = f"{shortest}" if shortest == longest else f"{shortest}..{longest}"
    heads = "" if found.heads == attention.HEADS else f" heads={found.heads}"
    return f"D={found.d} {'causal' if causal else 'full'} {len(lengths)} of {span}{heads}"
