"""Attention over a cache in GPU memory beside PyTorch's `scaled_dot_product_attention`, by cuDNN
and by its FlashAttention 2. Reading K and V bounds it: the figure is their bytes over time.

Peers read a cache whose sequences all have their full length and lie beside each other; with
`page=`, ours has the same keys and values in pages, in random order. With `cache=float8_e4m3`, ours
reads keys and values that are those of the peers rounded to 8 bits, half as many bytes. With
`lengths=random`, sequences have from 1 key to the full length; ours reads those, and no peer has
such lengths on the GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.attention import sdpa_kernel

import tilepipe as tp
from tilepipe.bench import timing
from tilepipe.bench.attention import PEERS, SAMPLED_HEADS, make_nan
from tilepipe.bench.beside import OURS, Contest, Sides
from tilepipe.bench.operands import DEVICE, in_turn
from tilepipe.bench.report import Check
from tilepipe.bench.sampled import SampledRows
from tilepipe.errors import BindError
from tilepipe.kernels.attention import reference
from tilepipe.kernels.attention_decode import sm90 as kernel
from tilepipe.kernels.attention_decode.config import DecodeConfig
from tilepipe.kernels.attention_decode.validation import Extents
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.attention_decode import ATTENTION_DECODE, extents
from tilepipe.registry.caches import lengths_of

# batch, heads, heads of the cache, keys
STANDARD = ((1, 32, 8, 32768), (16, 64, 8, 8192), (32, 32, 8, 4096), (64, 32, 8, 8192))
SUITES = {"standard": STANDARD, "quick": STANDARD[2:3]}
UNTIMED = {"causal", "left", "lse"}  # settings without a peer
RAISED = 16.0  # values of 8 bits are so much larger, and have descales


class Operands:
    """`sets` sets of standard normal queries and caches, and results by the name of who writes
    them.

    Attributes:
        k, v: as peers read them. ours_k, ours_v: as we do, `raised` times as large.
        lengths: keys of each sequence.
    """

    def __init__(
        self,
        found: Extents,
        seed: int,
        chip: tp.Chip,
        lengths: npt.NDArray[np.int32] | None = None,
    ) -> None:
        self.found, self._chip, self._seed = found, chip, seed
        self.lengths = np.full(found.batch, found.capacity, np.int32)
        self.lengths = self.lengths if lengths is None else lengths
        self.sets = timing.sets_for(cache_bytes(found))
        generator = torch.Generator(DEVICE).manual_seed(seed)
        dtype = getattr(torch, found.dtype.name)

        def drawn(*shape: int) -> list[torch.Tensor]:
            return [
                torch.randn(shape, generator=generator, device=DEVICE, dtype=dtype)
                for _ in range(self.sets)
            ]

        self.q = drawn(found.batch, found.tokens, found.heads, found.d)
        shape = found.batch, found.capacity, found.kv_heads, found.d
        self.k, self.v = drawn(*shape), drawn(*shape)
        self.ours_k, self.ours_v, self.raised = self.k, self.v, 1.0
        if found.narrow:
            self.raised = RAISED
            self.ours_k, self.ours_v = (
                [(x * RAISED).to(torch.float8_e4m3fn) for x in side] for side in (self.k, self.v)
            )
        self.results: dict[str, list[Any]] = {}

    def ours(self, cfg: DecodeConfig) -> timing.Launch:
        """Our kernel, compiled and loaded.

        Raises:
            TilepipeError: the configuration is impossible, or does not compile.
        """
        found = self.found
        if OURS not in self.results:
            self.results[OURS] = [torch.empty_like(x) for x in self.q]
        sizes = kernel.workspace_shapes(found, cfg, self._chip)
        parts, part_stats = (torch.empty(shape, device=DEVICE) for shape in sizes[:2])
        tickets = torch.zeros(sizes[2], dtype=torch.int32, device=DEVICE)
        k, v, table = self._cache
        named = {"q": self.q, "k": k, "v": v, "out": self.results[OURS]}
        alone = {"parts": parts, "part_stats": part_stats, "tickets": tickets}
        alone["lengths"] = torch.from_numpy(self.lengths).to(DEVICE)
        if found.narrow:
            for name in ("k_scale", "v_scale"):
                shape = found.batch, found.kv_heads
                alone[name] = torch.full(shape, 1 / self.raised, device=DEVICE)
        alone |= {} if table is None else {"table": table}
        named |= {name: [x] * self.sets for name, x in alone.items()}
        view = {name: TensorView(x[0]) for name, x in named.items()}
        program = kernel.bind(
            view["q"],
            view["k"],
            view["v"],
            view["out"],
            None,
            cfg,
            cache_seqlens=view["lengths"],
            block_table=view.get("table"),
            k_descale=view.get("k_scale"),
            v_descale=view.get("v_scale"),
            workspace=(view["parts"], view["part_stats"], view["tickets"]),
        )
        return in_turn(program.launcher(), named)

    @functools.cached_property
    def _cache(self) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor | None]:
        """Keys and values as our kernel reads them, and the table of pages, where there are any."""
        found, k, v = self.found, self.ours_k, self.ours_v
        if not found.page:
            return k, v, None
        order = torch.randperm(
            found.batch * found.capacity // found.page,
            generator=torch.Generator().manual_seed(self._seed),
        ).to(DEVICE)
        k, v = ([self._paged(x, order) for x in side] for side in (k, v))
        return k, v, order.to(torch.int32).view(found.batch, -1)

    def _paged(self, x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        pages = torch.empty_like(x).view(-1, self.found.page, *x.shape[2:])
        pages[order] = x.view(pages.shape)
        return pages

    def peer(self, name: str) -> timing.Launch:
        """One of `PEERS`; it allocates its results, which are kept under its name."""
        results = self.results[name] = [None] * self.sets

        def launch(i: int) -> None:
            q, k, v = (x[i].transpose(1, 2) for x in (self.q, self.k, self.v))
            with sdpa_kernel(PEERS[name]):
                made = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
            results[i] = made.transpose(1, 2)

        return launch

    def peers(self) -> tuple[dict[str, timing.Launch], dict[str, str]]:
        """The peers that can solve it; and why the others cannot."""
        able: dict[str, timing.Launch] = {}
        missing = {}
        for name in PEERS:
            if self.found.tokens > 1:
                missing[name] = "PyTorch aligns a causal mask at the first query, not at the last"
                continue
            if (self.lengths < self.found.capacity).any():
                missing[name] = "PyTorch has no lengths of sequences beside each other"
                continue
            try:
                launch = self.peer(name)
                launch(0)
                torch.cuda.synchronize()
                able[name] = launch
            except RuntimeError as error:
                missing[name] = str(error).splitlines()[0]
        return able, missing

    def wipe(self) -> None:
        """Makes every result NaN."""
        make_nan(self.results)

    def check(self, name: str, i: int) -> Check:
        """All queries of some heads of the first, the last and random sequences, beside float64."""
        found, rng = self.found, np.random.default_rng(self._seed)
        rows_seen = SampledRows()
        rows = np.arange(found.tokens)
        for b in (0, found.batch - 1, *rng.integers(0, found.batch, SAMPLED_HEADS - 2)):
            h = int(rng.integers(found.heads))
            sides, raised = (self.k, self.v), 1.0
            if name == OURS:
                sides, raised = (self.ours_k, self.ours_v), self.raised
            n = int(self.lengths[b])
            parts = self.q[i][b, :, h], *(x[i][b, :n, h // found.group] for x in sides)
            q, k, v = (x.double().cpu().numpy() for x in parts)
            k, v = k / raised, v / raised
            options = reference.AttentionOptions(causal=True, scale=found.scale)
            want = reference.head(q, k, v, rows, found.tokens, h, options, found.dtype)
            rows_seen.add(self.results[name][i][b, :, h], want)
        return rows_seen.check()


def cache_bytes(found: Extents, keys: int | None = None) -> float:
    """Bytes of K and V, as we read them; of so many keys of all sequences, or of the whole
    cache.
    """
    keys = found.batch * found.capacity if keys is None else keys
    return 2.0 * keys * found.kv_heads * found.d * found.cache_dtype.nbytes


def problem_text(found: Extents) -> str:
    """Batch, heads, keys, and what is not as in the standard problems."""
    text = f"B={found.batch} {found.heads}/{found.kv_heads} heads S={found.capacity}"
    unusual = {
        f"D={found.d}": found.d != 128,
        f"tokens={found.tokens}": found.tokens > 1,
        f"pages of {found.page}": found.page > 0,
        f"{found.cache_dtype}": found.narrow,
    }
    return " ".join([text, *(words for words, is_so in unusual.items() if is_so)])


def contests(
    given: Mapping[str, Any], texts: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench attention_decode` measures.

    Raises:
        BindError: settings or texts that name no problem.
    """
    if given.keys() & UNTIMED:
        raise BindError(
            "bench attention_decode has no peer with"
            f" {', '.join(sorted(given.keys() & UNTIMED))}: it takes batch, tokens, heads,"
            " kv_heads, s, d, page, lengths, dtype, cache"
        )
    for text in texts:
        if text not in SUITES:
            raise BindError(
                f"--shapes of attention_decode takes {' or '.join(SUITES)}, got {text!r}; other"
                " shapes: -s batch=8 -s s=4096 ..."
            )
    if not texts and {"batch", "s"} & given.keys():
        problems = [dict(given)]
    else:
        names = "batch", "heads", "kv_heads", "s"
        problems = [
            dict(zip(names, problem, strict=True)) | dict(given)
            for text in texts or ["standard"]
            for problem in SUITES[text]
        ]
    return [_contest(ATTENTION_DECODE.configure(x, chip)[0], seed, chip) for x in problems]


def _contest(settings: Mapping[str, Any], seed: int, chip: tp.Chip) -> Contest:
    found, cfg = extents(settings), ATTENTION_DECODE.config(settings)
    assert isinstance(cfg, DecodeConfig)
    if found.page and found.capacity % found.page:
        raise BindError(f"bench attention_decode: s={found.capacity} has no whole pages")

    lengths = lengths_of(settings, seed)

    def made() -> Operands:
        return Operands(found, seed, chip, lengths)

    def opened() -> Sides:
        operands = made()
        launches = {OURS: operands.ours(cfg)}
        peers, missing = operands.peers()
        config = f"{cfg.bn} s{cfg.stages} ctas={cfg.ctas}×{cfg.waves}"
        return Sides(
            config,
            operands.sets,
            launches | peers,
            operands.wipe,
            operands.check,
            missing,
        )

    keys = int(lengths.sum())
    flop = 4.0 * found.tokens * found.heads * keys * found.d
    text = problem_text(found) + f" lengths={settings['lengths']}" * bool(settings["lengths"])
    moves = cache_bytes(found, keys)
    return Contest(text, settings, flop, opened, moves=moves, operands=made)
