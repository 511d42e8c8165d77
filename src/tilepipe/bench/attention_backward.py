"""The gradients of attention in GPU memory beside those of PyTorch's `scaled_dot_product_attention`
by cuDNN and FlashAttention 2, and of FlashAttention 4 where it is installed.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import tilepipe as tp
from tilepipe.bench import timing
from tilepipe.bench.attention import DEVICE, FA4, HEADS, TOKENS, make_nan, problem_text
from tilepipe.bench.beside import OURS, Contest, Sides
from tilepipe.bench.flash_attention_4 import Form, compile_ahead
from tilepipe.bench.operands import in_turn
from tilepipe.bench.report import Check
from tilepipe.errors import BindError
from tilepipe.kernels.attention.scores import Window
from tilepipe.kernels.attention.validation import Extents
from tilepipe.kernels.attention_backward import sm90_bind as kernel
from tilepipe.kernels.attention_backward.config import BackwardConfig
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.attention_backward import ATTENTION_BACKWARD, extents

PEERS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FA2": SDPBackend.FLASH_ATTENTION}
SUITES = {"standard": (4096, 8192, 16384), "quick": (8192,)}
PRODUCTS = 5 / 2  # of tiles, to the two of the forward pass
LIMITS = {"bfloat16": 4e-3, "float16": 6e-4}  # relative errors: of P, dS and the result, rounded
ROWS = 1024  # queries whose scores are in float64 at once
Gradients = tuple[torch.Tensor, ...]


def exact(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor, causal: bool
) -> Gradients:
    """dq (heads, s_q, d), dk and dv (s_kv, d) in float64, of heads that share k and v; a causal
    mask lets the last query see all keys.
    """
    q, k, v, dout = (x.double() for x in (q, k, v, dout))
    scale, (heads, s_q, _), s_kv = q.shape[-1] ** -0.5, q.shape, len(k)
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    key = torch.arange(s_kv, device=q.device)
    for h, first in itertools.product(range(heads), range(0, s_q, ROWS)):
        rows = slice(first, min(first + ROWS, s_q))
        scores = scale * q[h, rows] @ k.T
        if causal:
            place = torch.arange(rows.start, rows.stop, device=q.device) + s_kv - s_q
            scores.masked_fill_(key > place[:, None], -torch.inf)
        p, do = scores.softmax(-1), dout[h, rows]
        dp = do @ v.T
        ds = scale * p * (dp - (p * dp).sum(-1, keepdim=True))
        dq[h, rows] = ds @ k
        dk += ds.T @ q[h, rows]
        dv += p.T @ do
    return dq, dk, dv


class Operands:
    """`sets` sets of standard normal operands (batch, s, heads, d), what the forward pass makes of
    them, and gradients (dq, dk, dv) by the name of who writes them.
    """

    def __init__(
        self,
        found: Extents,
        causal: bool,
        seed: int,
        sets: int | None = None,
        *,
        deterministic: bool = False,
    ) -> None:
        q_shape = (found.batch, found.s_q, found.heads, found.d)
        k_shape = (found.batch, found.s_kv, found.kv_heads, found.d)
        self.found, self.causal, self.deterministic = found, causal, deterministic
        nbytes = found.dtype.nbytes * float(4 * np.prod(q_shape) + 4 * np.prod(k_shape))
        self.sets = sets or timing.sets_for(nbytes)
        generator = torch.Generator(DEVICE).manual_seed(seed)
        kind = getattr(torch, found.dtype.name)

        def drawn(shape: tuple[int, ...]) -> list[Any]:
            made = (
                torch.randn(shape, generator=generator, device=DEVICE) for _ in range(self.sets)
            )
            return [x.to(kind) for x in made]

        self.q, self.dout = drawn(q_shape), drawn(q_shape)
        self.k, self.v = drawn(k_shape), drawn(k_shape)
        self.results: dict[str, list[Any]] = {}
        self._rng = np.random.default_rng(seed)
        self._wanted: dict[int, tuple[int, int, Gradients]] = {}

    @functools.cached_property
    def _forward(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The result and the logarithms of our forward pass for each set of operands."""
        return [
            tp.ops.attention(q, k, v, causal=self.causal, return_lse=True)
            for q, k, v in zip(self.q, self.k, self.v, strict=True)
        ]

    def ours(self, cfg: BackwardConfig) -> timing.Launch:
        """Our three kernels, compiled and loaded.

        Raises:
            TilepipeError: they do not compile.
        """
        forward = self._forward
        results = self.results.get(OURS) or [
            tuple(map(torch.empty_like, x)) for x in zip(self.q, self.k, self.v, strict=True)
        ]
        self.results[OURS] = results

        def empty(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
            return torch.empty(shape, dtype=getattr(torch, dtype), device=DEVICE)

        space = kernel.Workspace.of(self.found, self.deterministic, empty)
        tensors: dict[str, list[Any]] = {
            "q": self.q, "k": self.k, "v": self.v, "dout": self.dout,
            "out": [out for out, _ in forward], "lse": [lse for _, lse in forward],
            "dq": [x for x, _, _ in results], "dk": [x for _, x, _ in results],
            "dv": [x for _, _, x in results],
            **{name: [x] * self.sets for name, x in vars(space).items()},
        }  # fmt: skip
        v = {n: TensorView(x[0]) for n, x in tensors.items() if x[0] is not None}
        views = kernel.Workspace(v["lse_2"], v["delta"], v["sums"], v.get("turns"))
        programs = (
            kernel.bind_prepare(v["out"], v["dout"], v["lse"], views),
            kernel.bind(
                v["q"], v["k"], v["v"], v["dout"], v["dk"], v["dv"], views, cfg, causal=self.causal
            ),
            kernel.bind_finish(v["sums"], v["delta"], v["dq"], self.found.scale),
        )
        launches = [in_turn(program.launcher(), tensors) for program in programs]

        def launch(i: int) -> None:
            for each in launches:
                each(i)

        return launch

    def peer(self, name: str, forward: Callable[..., Any]) -> Callable[[int], None]:
        """A peer's gradients by autograd, of `forward` (q, k, v), run before. In the stream in
        which CUDA graphs are captured: autograd goes back in the stream of the forward pass.
        """
        torch.cuda.graph(torch.cuda.CUDAGraph())  # makes that stream
        stream, kept = torch.cuda.graph.default_capture_stream, []
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for given in zip(self.q, self.k, self.v, strict=True):
                leaves = [x.detach().requires_grad_() for x in given]
                kept.append((leaves, forward(*leaves)))
        torch.cuda.current_stream().wait_stream(stream)
        results = self.results[name] = [None] * self.sets

        def launch(i: int) -> None:
            leaves, out = kept[i]
            results[i] = torch.autograd.grad(out, leaves, self.dout[i], retain_graph=True)

        return launch

    def sdpa(self, name: str) -> Callable[..., Any]:
        """The forward pass of one of `PEERS`."""
        options: dict[str, Any] = {"enable_gqa": True} if self.found.group > 1 else {}

        def forward(*given: torch.Tensor) -> torch.Tensor:
            turned = (x.transpose(1, 2) for x in given)
            with sdpa_kernel(PEERS[name]):
                out = torch.nn.functional.scaled_dot_product_attention(
                    *turned, is_causal=self.causal, **options
                )
            return out.transpose(1, 2)

        return forward

    def flash_attention_4(self) -> Callable[..., Any]:
        """The forward pass of FlashAttention 4. Raises ImportError: it is not installed."""
        function = importlib.import_module("flash_attn.cute.interface").flash_attn_func

        def forward(*given: torch.Tensor) -> Any:
            made = function(*given, causal=self.causal, deterministic=self.deterministic)
            return made[0] if isinstance(made, tuple) else made

        return forward

    def peers(self) -> tuple[dict[str, timing.Launch], dict[str, str]]:
        """The peers that can solve it, in a CUDA graph too; and why the others cannot."""
        able: dict[str, timing.Launch] = {}
        missing = {}
        for name in (*PEERS, FA4):
            if name in PEERS and (self.deterministic or self._aligned_apart):
                missing[name] = "PyTorch has no such order, or aligns the mask at the first query"
                continue
            try:
                forward = self.flash_attention_4() if name == FA4 else self.sdpa(name)
                launch = self.peer(name, forward)
                launch(0)
                timing.Block(launch, 1, 1).run()
                able[name] = launch
            except (ImportError, RuntimeError) as error:  # not there, or not for the problem
                missing[name] = str(error).splitlines()[0]
        return able, missing

    @property
    def _aligned_apart(self) -> bool:
        return self.causal and self.found.s_q != self.found.s_kv

    def wipe(self) -> None:
        """Makes every result NaN."""
        for each in self.results.values():
            make_nan({"": [x for found in each if found is not None for x in found]})

    def check(self, name: str, i: int) -> Check:
        """The gradients of one head of K and V, drawn at random, and of its queries, for set `i`,
        beside float64: the worst of the three relative errors.
        """
        b, h, want = self._of(i)
        dq, dk, dv = (x[b].double() for x in self.results[name][i])
        got = dq[:, self._heads(h)].transpose(0, 1), dk[:, h], dv[:, h]
        error = largest = 0.0
        for x, y in zip(got, want, strict=True):
            size = float(y.norm()) or 1.0
            error = max(error, float((x - y).norm()) / size)
            largest = max(largest, float((x - y).abs().max()) * y.numel() ** 0.5 / size)
        finite = all(bool(torch.isfinite(x).all()) for x in got)
        return Check(error, largest, finite and error <= LIMITS[self.found.dtype.name])

    def _heads(self, h: int) -> slice:
        return slice(h * self.found.group, (h + 1) * self.found.group)

    def _of(self, i: int) -> tuple[int, int, Gradients]:
        """(batch, head of K and V, float64 gradients) of set `i`."""
        if i not in self._wanted:
            found = self.found
            b, h = int(self._rng.integers(found.batch)), int(self._rng.integers(found.kv_heads))
            q, dout = (x[i][b, :, self._heads(h)].transpose(0, 1) for x in (self.q, self.dout))
            made = exact(q, self.k[i][b, :, h], self.v[i][b, :, h], dout, self.causal)
            self._wanted[i] = b, h, made
        return self._wanted[i]


def flop(found: Extents, causal: bool) -> float:
    """Multiplications and additions of the five products of the scores that are seen."""
    first, stop = Window.of(causal, None).seen(found.s_q, found.s_kv)
    pairs = float((stop - first).sum())
    return PRODUCTS * 4.0 * found.batch * found.heads * found.d * pairs


def problems(given: Mapping[str, Any], texts: Sequence[str]) -> list[dict[str, Any]]:
    """All settings of the problems that texts name: "standard" or "quick", as far as nothing else
    is given; none: the problem given, if its lengths or its batch are, else the standard ones.

    Raises:
        BindError: another text, or a setting that no peer has.
    """
    if given.get("align", "last") != "last":
        raise BindError("bench attention_backward has no peer with align")
    base = ATTENTION_BACKWARD.settings | dict(given)
    if not texts and {"batch", "s_q", "s_kv"} & given.keys():
        return [base]
    for text in texts:
        if text not in SUITES:
            raise BindError(
                f"--shapes of attention_backward takes {' or '.join(SUITES)}, got {text!r}; other"
                " shapes: -s s_q=4096 -s s_kv=4096 ..."
            )
    heads = {"heads": HEADS, "kv_heads": given.get("kv_heads", given.get("heads", HEADS))}
    depths = [given["d"]] if "d" in given else [128, 64]
    masks = [given["causal"]] if "causal" in given else [False, True]
    return [
        base
        | heads
        | {"batch": TOKENS // s, "s_q": s, "s_kv": s, "d": d, "causal": causal}
        | dict(given)
        for text in texts or ["standard"]
        for d, causal, s in itertools.product(depths, masks, SUITES[text])
    ]


def contests(
    given: Mapping[str, Any], texts: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    """What `tilepipe bench attention_backward` measures.

    Raises:
        BindError: settings or texts that name no problem.
    """
    tiles = {name: value for name, value in given.items() if name in ATTENTION_BACKWARD.tiles}
    wanted = (
        {n: value for n, value in settings.items() if n not in ATTENTION_BACKWARD.tiles} | tiles
        for settings in problems(given, texts)
    )
    configured = [ATTENTION_BACKWARD.configure(settings, chip)[0] for settings in wanted]

    @functools.cache
    def prepare() -> None:
        compile_ahead(map(_form, configured))

    return [_contest(settings, seed, prepare) for settings in configured]


def _form(settings: Mapping[str, Any]) -> Form:
    found = extents(settings)
    asked = settings["causal"], settings["deterministic"]
    return Form(found.heads, found.kv_heads, found.d, *asked, found.dtype.name)


def _contest(settings: Mapping[str, Any], seed: int, prepare: Callable[[], None]) -> Contest:
    found, causal, cfg = extents(settings), settings["causal"], ATTENTION_BACKWARD.config(settings)
    in_order = settings["deterministic"]

    def made() -> Operands:
        return Operands(found, causal, seed, deterministic=in_order)

    def opened() -> Sides:
        prepare()
        operands = made()
        launches = {OURS: operands.ours(cfg)}
        peers, missing = operands.peers()
        sides = launches | peers
        text = f"heads together: {cfg.group}" + (", in turns" if in_order else "")
        return Sides(text, operands.sets, sides, operands.wipe, operands.check, missing)

    problem = problem_text(found, causal) + (" in turns" if in_order else "")
    return Contest(problem, settings, flop(found, causal), opened, operands=made)
