"""Writing to a cache in GPU memory beside PyTorch's `index_put_`, which takes the places from
indices on the device, and beside a copy to a slice, for which all sequences have one length that
the host knows. The figure is bytes of the new keys and values, read and written, over time.

Each set of operands has the tokens behind those of the set before, in one cache for each side: a
loop of decoding, so that no write meets a line that another has just left in L2. The indices of
`index_put_` are made before; ours finds the places from the lengths, in the launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

import tilepipe as tp
from tilepipe.bench import timing
from tilepipe.bench.beside import OURS, Contest, Sides
from tilepipe.bench.operands import DEVICE, in_turn
from tilepipe.bench.report import Check
from tilepipe.errors import BindError
from tilepipe.kernels.append_kv import sm90 as kernel
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.append_kv import APPEND_KV, Problem, problem

SLICE, PUT = "slice copies", "index_put_"
# batch, tokens, heads of the cache, room: a step of decoding, of several sizes, and a chunk of a
# prompt
STANDARD = ((16, 1, 8, 4096), (64, 1, 8, 4096), (256, 1, 8, 1024), (8, 512, 8, 8192))
SUITES = {"standard": STANDARD, "quick": STANDARD[1:2]}
RAISED = 16.0  # values of 8 bits are so much larger, by a descale
BEFORE = 1  # keys that each sequence has before the first set
NAN = 0xFF  # bytes of a NaN, in every dtype of a cache


class Operands:
    """`sets` sets of new keys and values, and a cache of K and V for each side.

    Attributes:
        k, v: by set, (batch, tokens, kv_heads, d). lengths: by set, int32 (batch,). table: int32
            (batch, pages of a sequence), or None. caches: by side.
    """

    def __init__(self, found: Problem, seed: int) -> None:
        self.found = found
        self.sets = min(timing.sets_for(moved(found)), (found.room - BEFORE) // found.tokens)
        if self.sets < 1:
            raise BindError(
                f"bench append_kv: s={found.s} has no room for {found.tokens} tokens behind"
                f" {BEFORE} key"
            )
        generator = torch.Generator(DEVICE).manual_seed(seed)
        shape = found.batch, found.tokens, found.kv_heads, found.d
        self.k, self.v = (
            [
                torch.randn(shape, generator=generator, device=DEVICE).to(_torch_dtype(found.new))
                for _ in range(self.sets)
            ]
            for _ in range(2)
        )
        self.places = [BEFORE + i * found.tokens for i in range(self.sets)]
        self.lengths = [
            torch.full((found.batch,), place + found.tokens, dtype=torch.int32, device=DEVICE)
            for place in self.places
        ]
        self.table: torch.Tensor | None = None
        if found.page:
            count = found.batch * found.room // found.page
            order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
            self.table = order.to(DEVICE, torch.int32).view(found.batch, -1)
        self.caches: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def cache(self, side: str) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of a side, all NaN when they are made."""
        if side not in self.caches:
            found = self.found
            shape: tuple[int, ...] = found.batch, found.room, found.kv_heads, found.d
            if found.page:
                shape = found.batch * found.room // found.page, found.page, *shape[2:]
            k, v = (
                torch.empty(shape, dtype=_torch_dtype(found.cache), device=DEVICE) for _ in range(2)
            )
            self.caches[side] = k, v
            self.wipe(side)
        return self.caches[side]

    def ours(self) -> timing.Launch:
        """Our kernel, compiled and loaded."""
        k_cache, v_cache = self.cache(OURS)
        alone = {"k_cache": k_cache, "v_cache": v_cache}
        if self.table is not None:
            alone["table"] = self.table
        named = {"k": self.k, "v": self.v, "lengths": self.lengths}
        named |= {name: [x] * self.sets for name, x in alone.items()}
        view = {name: TensorView(x[0]) for name, x in named.items()}
        factor = 1 / RAISED if self.found.narrow else None
        program = kernel.bind(
            view["k_cache"],
            view["v_cache"],
            view["k"],
            view["v"],
            view["lengths"],
            block_table=view.get("table"),
            k_descale=factor,
            v_descale=factor,
        )
        return in_turn(program.launcher(), named)

    def put(self) -> timing.Launch:
        """`index_put_` to K and to V, at indices that are there."""
        caches, tokens = self.cache(PUT), torch.arange(self.found.tokens, device=DEVICE)
        outer = torch.arange(self.found.batch, device=DEVICE)[:, None]
        indices = []
        for place in self.places:
            keys = (place + tokens).expand(self.found.batch, -1)
            if self.table is None:
                indices.append((outer.expand_as(keys).contiguous(), keys.contiguous()))
            else:
                page = self.found.page
                pages = self.table.gather(1, keys // page).long()
                indices.append((pages, (keys % page).contiguous()))

        def launch(i: int) -> None:
            for cache, new in zip(caches, (self.k[i], self.v[i]), strict=True):
                cache.index_put_(indices[i], new)

        return launch

    def slices(self) -> timing.Launch:
        """A copy to a slice of K, and one of V."""
        caches, tokens = self.cache(SLICE), self.found.tokens

        def launch(i: int) -> None:
            place = self.places[i]
            for cache, new in zip(caches, (self.k[i], self.v[i]), strict=True):
                cache[:, place : place + tokens].copy_(new)

        return launch

    def sides(self) -> Sides:
        """Ours and the peers that can do it."""
        launches, missing = {OURS: self.ours()}, {}
        if self.found.narrow:
            missing = dict.fromkeys((SLICE, PUT), "divides by no descale")
        elif self.found.new is not self.found.cache:
            missing[PUT] = "converts no dtype"
        for side, make in ((SLICE, self.slices), (PUT, self.put)):
            if side not in missing:
                launches[side] = make()
        if self.found.page and SLICE in launches:
            del launches[SLICE]
            missing[SLICE] = "knows no pages"
        return Sides("", self.sets, launches, lambda: self.wipe(*self.caches), self.check, missing)

    def wipe(self, *sides: str) -> None:
        """Makes all keys and values of some sides NaN."""
        for side in sides:
            for x in self.caches[side]:
                x.view(torch.uint8).fill_(NAN)

    def check(self, side: str, i: int) -> Check:
        """Whether what a side has written for set `i` is right in every bit, and the keys before
        the first set are as they were.
        """
        found, wrong = self.found, 0
        first = self.places[i]
        for cache, new in zip(self.caches[side], (self.k[i], self.v[i]), strict=True):
            wide = new.float() * RAISED if found.narrow else new.float()
            want = wide.to(cache.dtype).view(torch.uint8)
            got = torch.stack([self._key(cache, first + j) for j in range(found.tokens)], 1)
            wrong += int((got.view(torch.uint8) != want).sum())
            wrong += sum(
                int((self._key(cache, j).view(torch.uint8) != NAN).sum()) for j in range(BEFORE)
            )
        size = 2 * self.k[i].numel() * found.cache.nbytes
        return Check(wrong / size, float(wrong), not wrong)

    def _key(self, cache: torch.Tensor, place: int) -> torch.Tensor:
        """One key of each sequence, (batch, kv_heads, d)."""
        if self.table is None:
            return cache[:, place]
        page = self.found.page
        return cache[self.table[:, place // page].long(), place % page]


def _torch_dtype(dtype: tp.DType) -> torch.dtype:
    return torch.float8_e4m3fn if dtype is tp.float8_e4m3 else getattr(torch, dtype.name)


def moved(found: Problem) -> float:
    """Bytes of K and V, read once and written once."""
    count = found.batch * found.tokens * found.kv_heads * found.d
    return 2.0 * count * (found.new.nbytes + found.cache.nbytes)


def problem_text(found: Problem) -> str:
    """Batch, tokens, heads, room, and what is not as in the standard problems."""
    text = f"B={found.batch} tokens={found.tokens} {found.kv_heads} heads S={found.s}"
    unusual = {
        f"D={found.d}": found.d != 128,
        f"pages of {found.page}": found.page > 0,
        f"{found.new} to {found.cache}": found.new is not found.cache,
    }
    return " ".join([text, *(words for words, is_so in unusual.items() if is_so)])


def contests(
    given: Mapping[str, Any], texts: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench append_kv` measures.

    Raises:
        BindError: settings or texts that name no problem.
    """
    if "lengths" in given:
        raise BindError(
            "bench append_kv has lengths of its own, which grow by the tokens of a launch: it takes"
            " batch, tokens, kv_heads, s, d, page, dtype, cache"
        )
    for text in texts:
        if text not in SUITES:
            raise BindError(
                f"--shapes of append_kv takes {' or '.join(SUITES)}, got {text!r}; other shapes:"
                " -s batch=8 -s tokens=1 ..."
            )
    names = "batch", "tokens", "kv_heads", "s"
    problems = [
        dict(zip(names, shape, strict=True)) | dict(given)
        for text in texts or ["standard"]
        for shape in SUITES[text]
    ]
    if not texts and set(names) & given.keys():
        problems = [dict(given)]
    return [_contest(APPEND_KV.configure(x, chip)[0], seed) for x in problems]


def _contest(settings: Mapping[str, Any], seed: int) -> Contest:
    found = problem(settings)

    def opened() -> Sides:
        torch.cuda.empty_cache()
        return Operands(found, seed).sides()

    return Contest(problem_text(found), settings, 0.0, opened, moves=moved(found))
