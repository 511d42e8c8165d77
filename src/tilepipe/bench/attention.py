"""Attention in GPU memory beside PyTorch's `scaled_dot_product_attention`, by cuDNN and by its
FlashAttention 2.
"""

from __future__ import annotations

import importlib
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import tilepipe as tp
from tilepipe.bench import timing
from tilepipe.bench.beside import OURS, Contest, Sides
from tilepipe.bench.operands import in_turn
from tilepipe.bench.report import Check
from tilepipe.bench.sampled import SampledRows
from tilepipe.errors import BindError
from tilepipe.kernels.attention import reference, sm90_bind as kernel
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.scores import Window
from tilepipe.kernels.attention.validation import Extents
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.attention import ATTENTION, extents

PEERS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FA2": SDPBackend.FLASH_ATTENTION}
FA4 = "FA4"  # FlashAttention's CuTe kernels, of the package flash-attn-4, where it is installed
TOKENS, HEADS = 16384, 16  # of every standard problem: its batch is TOKENS / S
SUITES = {"standard": (4096, 8192, 16384), "quick": (8192,)}
RANDOM, RANDOM_COUNT = "random", 12
SAMPLED_HEADS, SAMPLED_ROWS = 4, 64  # that are compared with float64, of each result
DEVICE = "cuda"
# settings without a peer
UNTIMED = {"align", "block_mask", "d_v", "left", "right", "softcap", "slopes", "scales", "sinks"}


def counter_of(
    cfg: AttentionConfig, sets: int
) -> tuple[TensorView | None, dict[str, list[torch.Tensor]]]:
    """The counter that a dynamic schedule draws tiles from, to bind, and to launch with; each of
    the `sets` launches leaves it at 0.
    """
    if cfg.schedule != "dynamic":
        return None, {}
    counter = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    return TensorView(counter), {"counter": [counter] * sets}


def make_nan(results: Mapping[str, Sequence[Any]]) -> None:
    """Fills the results of all who have written any with NaN."""
    for written in results.values():
        for x in written:
            if x is not None:
                x.fill_(torch.nan)


def sets_of(found: Extents) -> int:
    """How many sets of operands launches rotate through."""
    queries = found.batch * found.s_q * found.heads * found.d
    keys = found.batch * found.s_kv * found.kv_heads * (found.d + found.d_v)
    return timing.sets_for(2.0 * (2 * queries + keys))


class Operands:
    """`sets` sets of standard normal operands (batch, s, heads, d), and results by the name of who
    writes them.
    """

    def __init__(self, found: Extents, causal: bool, seed: int, sets: int | None = None) -> None:
        q_shape = (found.batch, found.s_q, found.heads, found.d)
        k_shape, v_shape = (
            (found.batch, found.s_kv, found.kv_heads, width) for width in (found.d, found.d_v)
        )
        self.found, self.causal = found, causal
        self.sets = sets or sets_of(found)
        generator = torch.Generator(DEVICE).manual_seed(seed)
        self._dtype = torch.float8_e4m3fn if found.narrow else getattr(torch, found.dtype.name)

        def drawn(shape: tuple[int, ...]) -> list[Any]:
            made = (
                torch.randn(shape, generator=generator, device=DEVICE, dtype=torch.float32)
                for _ in range(self.sets)
            )
            return [x.to(self._dtype) for x in made]

        self.q, self.k, self.v = drawn(q_shape), drawn(k_shape), drawn(v_shape)
        self.results: dict[str, list[Any]] = {}
        self._seed = seed
        self._references: dict[int, list[tuple[int, int, Any, reference.HeadRows]]] = {}

    @property
    def options(self) -> reference.AttentionOptions:
        """The results of float64, to compare with."""
        return reference.AttentionOptions(self.causal, scale=self.found.scale)

    def ours(self, cfg: AttentionConfig, name: str = OURS) -> timing.Launch:
        """Our kernel, compiled and loaded; its results are kept under `name`, the same for all
        configurations.

        Raises:
            TilepipeError: the configuration is impossible, or does not compile.
        """
        self._allocate(name)
        q, k, v, out = (TensorView(x[0]) for x in (self.q, self.k, self.v, self.results[name]))
        counter, given = counter_of(cfg, self.sets)
        launcher = kernel.bind(
            q, k, v, out, None, cfg, causal=self.causal, counter=counter
        ).launcher()
        tensors = {"q": self.q, "k": self.k, "v": self.v, "out": self.results[name]}
        return in_turn(launcher, tensors | given)

    def _allocate(self, name: str) -> None:
        """Memory for our results under a name, where there is none yet."""
        if name not in self.results:
            shape, dtype = (*self.q[0].shape[:3], self.found.d_v), self.found.out_dtype.name
            made = (x.new_empty(shape, dtype=getattr(torch, dtype)) for x in self.q)
            self.results[name] = list(made)

    def peer(self, name: str) -> Callable[[int], None]:
        """One of `PEERS`, which reads the same memory; it allocates its results, which are kept
        under its name.
        """
        results = self.results[name] = [None] * self.sets
        options: dict[str, Any] = {"enable_gqa": True} if self.found.group > 1 else {}

        def launch(i: int) -> None:
            q, k, v = (x[i].transpose(1, 2) for x in (self.q, self.k, self.v))
            with sdpa_kernel(PEERS[name]):
                made = torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=self.causal, **options
                )
            results[i] = made.transpose(1, 2)

        return launch

    def flash_attention_4(self) -> Callable[[int], None]:
        """FlashAttention 4, as `peer`.

        Raises:
            ImportError: it is not installed.
        """
        function = importlib.import_module("flash_attn.cute.interface").flash_attn_func
        results = self.results[FA4] = [None] * self.sets

        def launch(i: int) -> None:
            made = function(self.q[i], self.k[i], self.v[i], causal=self.causal)
            results[i] = made[0] if isinstance(made, tuple) else made

        return launch

    def peers(self) -> tuple[dict[str, timing.Launch], dict[str, str]]:
        """The peers that can solve it; and why the others cannot."""
        able: dict[str, timing.Launch] = {}
        missing = {}
        for name in (*PEERS, FA4):
            if name in PEERS and self.causal and self.found.s_q != self.found.s_kv:
                missing[name] = (
                    "PyTorch aligns a causal mask at the first query, and not at the last"
                )
                continue
            try:
                launch = self.flash_attention_4() if name == FA4 else self.peer(name)
                launch(0)
                torch.cuda.synchronize()
                able[name] = launch
            except (ImportError, RuntimeError) as error:  # not there, or not for the problem
                missing[name] = str(error).splitlines()[0]
        return able, missing

    def wipe(self) -> None:
        """Makes every result NaN."""
        make_nan(self.results)

    def check(self, name: str, i: int) -> Check:
        """A sample of the rows of a result for set `i` beside float64: some heads, of those the
        first, the last and random rows.
        """
        rows_seen = SampledRows()
        for b, h, rows, want in self._wanted(i):
            rows_seen.add(self.results[name][i][b, rows, h], want)
        return rows_seen.check()

    def _wanted(self, i: int) -> list[tuple[int, int, Any, reference.HeadRows]]:
        """(batch, head, rows, float64 results) of set `i`."""
        if i not in self._references:
            self._references[i] = self._sampled(i)
        return self._references[i]

    def _sampled(self, i: int) -> list[tuple[int, int, Any, reference.HeadRows]]:
        found, rng = self.found, np.random.default_rng(self._seed)
        rows = np.unique([0, found.s_q - 1, *rng.integers(0, found.s_q, SAMPLED_ROWS)])
        made = []
        for _ in range(SAMPLED_HEADS):
            b, h = int(rng.integers(found.batch)), int(rng.integers(found.heads))
            at = torch.from_numpy(rows).to(DEVICE)
            kv_head = h // found.group
            parts = self.q[i][b, at, h], self.k[i][b, :, kv_head], self.v[i][b, :, kv_head]
            q, k, v = (x.double().cpu().numpy() for x in parts)
            want = reference.head(
                q, k, v, rows, found.s_q, h, self.options, found.dtype, b=b,
                rounded_to=found.out_dtype.name,
            )  # fmt: skip
            made.append((b, h, at, want))
        return made


def _drawn(seed: int) -> list[dict[str, Any]]:
    """`RANDOM_COUNT` problems: S log-uniform in 1,024 to 32,768, about as many tokens and heads in
    all as of the standard ones, and as many with d = 64 as with 128, full as causal.
    """
    rng, found = random.Random(seed), []
    for i in range(RANDOM_COUNT):
        s = int(round(2 ** rng.uniform(10, 15) / 8) * 8)
        heads = rng.choice((8, 16, 32))
        found.append(
            {
                "batch": max(1, min(16, round(TOKENS * HEADS / (s * heads)))),
                "heads": heads,
                "kv_heads": heads // rng.choice((1, 1, 4, 8)),
                "s_q": s,
                "s_kv": s,
                "d": (128, 64)[i % 2],
                "causal": i // 2 % 2 == 1,
            }
        )
    return found


def problems(given: Mapping[str, Any], texts: Sequence[str], seed: int = 0) -> list[dict[str, Any]]:
    """All settings of the problems that texts name: "standard", "quick", or "random", which `seed`
    draws, as far as nothing else is given; none: the problem given, if its lengths or its batch
    are, else the standard ones.

    Raises:
        BindError: another text, or a setting that no peer has.
    """
    if given.keys() & UNTIMED:
        raise BindError(
            f"bench attention has no peer with {', '.join(sorted(given.keys() & UNTIMED))}: it"
            " takes batch, heads, kv_heads, s_q, s_kv, d, causal"
        )
    base = ATTENTION.settings | dict(given)
    if not texts and {"batch", "s_q", "s_kv"} & given.keys():
        return [base]
    for text in texts:
        if text not in (*SUITES, RANDOM):
            raise BindError(
                f"--shapes of attention takes {', '.join(SUITES)} or {RANDOM}, or packed alone,"
                f" got {text!r};"
                " other shapes: -s s_q=4096 -s s_kv=4096 ..., or -s lengths=4096,1024"
            )
    heads = {"heads": HEADS, "kv_heads": given.get("kv_heads", given.get("heads", HEADS))}
    depths = [given["d"]] if "d" in given else [128, 64]
    masks = [given["causal"]] if "causal" in given else [False, True]
    found: list[dict[str, Any]] = []
    for text in texts or ["standard"]:
        if text == RANDOM:
            found += [base | drawn | dict(given) for drawn in _drawn(seed)]
            continue
        found += [
            base
            | heads
            | {"batch": TOKENS // s, "s_q": s, "s_kv": s, "d": d, "causal": causal}
            | dict(given)
            for d, causal, s in itertools.product(depths, masks, SUITES[text])
        ]
    return found


def flop(found: Extents, causal: bool) -> float:
    """Multiplications and additions of the scores that are seen, and of as many probabilities."""
    first, stop = Window.of(causal, None).seen(found.s_q, found.s_kv)
    pairs = float((stop - first).sum())
    return 2.0 * found.batch * found.heads * (found.d + found.d_v) * pairs


def problem_text(found: Extents, causal: bool) -> str:
    """D, mask, S, and what is not as in the standard problems."""
    lengths = f"S={found.s_q}" + (f"×{found.s_kv}" if found.s_kv != found.s_q else "")
    unusual = {
        f"batch={found.batch}": found.batch * found.s_q != TOKENS,
        f"heads={found.heads}": found.heads != HEADS,
        f"kv_heads={found.kv_heads}": found.kv_heads != found.heads,
        str(found.dtype): found.narrow,
    }
    head = f"D={found.d}", "causal" if causal else "full", lengths
    return " ".join([*head, *(text for text, is_so in unusual.items() if is_so)])


def config_text(cfg: AttentionConfig) -> str:
    """A configuration in few words: tile, stages, and what is not the default."""
    rest = {
        name: value for name, value in cfg.as_dict().items() if name not in ("bm", "bn", "stages")
    }
    default = AttentionConfig().as_dict()
    return " ".join(
        [
            f"{cfg.bm}×{cfg.bn} s{cfg.stages}",
            *(f"{name}={value}" for name, value in rest.items() if value != default[name]),
        ]
    )


def contests(
    given: Mapping[str, Any], texts: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench attention` measures; with `lengths`, or the text "packed", sequences of
    different lengths; with `block_mask`, under one.

    Raises:
        BindError: settings or texts that name no problem.
    """
    if "lengths" in given or list(texts) == ["packed"]:
        from tilepipe.bench import attention_packed

        return attention_packed.contests(given, texts, chip, seed)
    if "block_mask" in given:
        from tilepipe.bench import attention_blocks

        return attention_blocks.contests(given, texts, chip, seed)
    tiles = {name: value for name, value in given.items() if name in ATTENTION.tiles}
    wanted = (
        {name: value for name, value in settings.items() if name not in ATTENTION.tiles} | tiles
        for settings in problems(given, texts, seed)
    )
    return [_contest(ATTENTION.configure(settings, chip)[0], seed) for settings in wanted]


def _narrow() -> type[Operands]:
    """Operands of 8 bits, whose module imports this one."""
    from tilepipe.bench import attention_narrow

    return attention_narrow.NarrowOperands


def _contest(settings: Mapping[str, Any], seed: int) -> Contest:
    found, causal, cfg = (
        extents(settings),
        settings["causal"],
        ATTENTION.config(settings),
    )
    assert isinstance(cfg, AttentionConfig)

    def made() -> Operands:
        return (_narrow() if found.narrow else Operands)(found, causal, seed)

    def opened() -> Sides:
        operands = made()
        launches = {OURS: operands.ours(cfg)}
        peers, missing = operands.peers()
        return Sides(
            config_text(cfg),
            operands.sets,
            launches | peers,
            operands.wipe,
            operands.check,
            missing,
        )

    text, work = problem_text(found, causal), flop(found, causal)
    return Contest(text, settings, work, opened, operands=made)
