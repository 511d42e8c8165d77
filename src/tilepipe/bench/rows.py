"""Norms, softmax and cross entropy in GPU memory, forward and backward, beside what PyTorch's
compiler makes of them, and beside QuACK where it is installed. Memory bounds them: the figure is
bytes of the matrices, each read or written once, over time.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

import tilepipe as tp
from tilepipe.bench import timing
from tilepipe.bench.beside import OURS, Contest, Sides
from tilepipe.bench.operands import DEVICE, in_turn
from tilepipe.bench.report import Check
from tilepipe.errors import BindError
from tilepipe.kernels.cross_entropy import sm90 as cross_entropy
from tilepipe.kernels.layer_norm import sm90 as layer_norm
from tilepipe.kernels.rms_norm import sm90 as rms_norm
from tilepipe.kernels.rows.column_sums import column_sums
from tilepipe.kernels.rows.config import RowConfig
from tilepipe.kernels.rows.team import part_rows
from tilepipe.kernels.softmax import sm90 as softmax
from tilepipe.ops.torch.tensors import TensorView
from tilepipe.registry.rows import CROSS_ENTROPY, LAYER_NORM, RMS_NORM, SOFTMAX

COMPILED, QUACK = "torch.compile", "QuACK"
STANDARD = ((16384, 4096), (32768, 8192), (8192, 16384), (65536, 1024))  # rows, columns
SPECS = {x.name: x for x in (RMS_NORM, LAYER_NORM, SOFTMAX, CROSS_ENTROPY)}
EPS = 1e-6
# relative error: of bfloat16 and float16 rounded once, or, by a peer, some parts of it before
LIMITS = {torch.float32: 1e-4, torch.float16: 1e-3, torch.bfloat16: 4e-3}
Results = tuple[torch.Tensor, ...]


def rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The RMS norm, in float32 unless x is float64."""
    wide = x if x.dtype is torch.float64 else x.float()
    r = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + EPS)
    return (wide * r * w.to(wide.dtype)).to(x.dtype)


def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The layer norm."""
    return F.layer_norm(x, x.shape[-1:], w, b, EPS)


def entropy(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The cross entropy of each row, in float32 unless x is float64."""
    wide = x if x.dtype is torch.float64 else x.float()
    return F.cross_entropy(wide, labels, reduction="none")


class RowOperands:
    """`sets` sets of x and dy (m, n), random normal values; weight and bias (n,), labels and dloss
    (m,) for all sets. Results of each side by set.
    """

    def __init__(self, kernel: str, settings: Mapping[str, Any], seed: int) -> None:
        self.kernel, self.backward = kernel, bool(settings["backward"])
        self.m, self.n = settings["m"], settings["n"]
        self.cfg: RowConfig = SPECS[kernel].config(settings)
        dtype = getattr(torch, tp.dtype(settings["dtype"]).name)
        self.sets = timing.sets_for(moved(kernel, settings))
        generator = torch.Generator(DEVICE).manual_seed(seed)

        def normal(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.randn(shape, generator=generator, device=DEVICE, dtype=dtype)

        self.x = [normal(self.m, self.n) for _ in range(self.sets)]
        self.dy = [normal(self.m, self.n) for _ in range(self.sets if self.backward else 0)]
        self.weight, self.bias = normal(self.n), normal(self.n)
        self.labels = torch.randint(0, self.n, (self.m,), generator=generator, device=DEVICE)
        self.dloss = normal(self.m, dtype=torch.float32)
        if kernel == "softmax" and self.backward:
            self.x = [torch.softmax(x.float(), -1).to(dtype) for x in self.x]  # y, in truth
        self.lse = [torch.logsumexp(x.float(), -1) for x in self.x] if self._entropy else []
        self.results: dict[str, list[Results]] = {}
        self._held: list[dict[str, list[torch.Tensor]]] = []
        self._want: dict[int, Results] = {}
        self._sums: list[torch.Tensor] = []

    @property
    def _entropy(self) -> bool:
        return self.kernel == "cross_entropy"

    def _function(self, x: torch.Tensor, dy: torch.Tensor | None, *more: torch.Tensor) -> Results:
        """The results of a call in PyTorch."""
        if self.kernel == "softmax":
            if dy is None:
                return (torch.softmax(x, -1),)
            wide = x if x.dtype is torch.float64 else x.float()
            product = (wide * dy).sum(-1, keepdim=True)
            return ((wide * (dy - product)).to(x.dtype),)
        if self._entropy:
            if not self.backward:
                return (entropy(x, self.labels),)
            gradient = torch.func.vjp(lambda x: entropy(x, self.labels), x)[1]
            return (gradient(more[0])[0],)
        function = rms if self.kernel == "rms_norm" else layer
        if dy is None:
            return (function(x, *more),)
        return tuple(torch.func.vjp(function, x, *more)[1](dy))

    def _more(self, wide: bool = False) -> Results:
        """The arguments of a call beside x and dy."""
        if self.kernel == "softmax":
            return ()
        if self._entropy:
            found: Results = (self.dloss,) if self.backward else ()
        else:
            found = (self.weight,) if self.kernel == "rms_norm" else (self.weight, self.bias)
        return tuple(x.double() for x in found) if wide else found

    def ours(self, cfg: RowConfig | None = None) -> timing.Launch:
        """Our kernels: a backward norm is followed by the sums of its parts. `cfg`: another than
        the settings'. All configurations write the same results.
        """
        cfg, by_row = cfg or self.cfg, self._entropy and not self.backward
        mine = [list(x) for x in self.results.get(OURS, ())] or [
            [torch.empty(self.m, device=DEVICE) if by_row else torch.empty_like(x)] for x in self.x
        ]
        alone = {"weight": self.weight, "bias": self.bias, "labels": self.labels}
        named: dict[str, list[torch.Tensor]] = {
            "x": self.x,
            "dy": self.dy,
            "lse": self.lse,
            "dloss": [self.dloss] * self.sets,
            **{name: [v] * self.sets for name, v in alone.items()},
            **{name: [results[0] for results in mine] for name in ("y", "dx", "loss")},
        }
        if self.kernel == "softmax" and self.backward:
            named |= {"y": self.x, "x": named["dx"]}
        count = {"rms_norm": 1, "layer_norm": 2}.get(self.kernel, 0) if self.backward else 0
        if count:
            sms = torch.cuda.get_device_properties(DEVICE).multi_processor_count
            shape = count, part_rows(self.m, cfg, sms), self.n
            named["parts"] = [torch.zeros(shape, device=DEVICE)] * self.sets
            if not self._sums:
                self._sums = [self.weight.new_empty((count, self.n)) for _ in mine]
            named["out"] = self._sums
            mine = [[results[0], *out] for results, out in zip(mine, self._sums, strict=True)]
        views = {name: TensorView(found[0]) for name, found in named.items() if found}
        programs = [self._bind(views, cfg)]
        if count:
            programs.append(column_sums.bind(views["parts"], views["out"]))
        launches = [in_turn(program.launcher(), named) for program in programs]
        self._held.append(named)  # the launches know addresses alone
        self.results[OURS] = [tuple(results) for results in mine]

        def launch(i: int) -> None:
            for each in launches:
                each(i)

        return launch

    def _bind(self, v: Mapping[str, TensorView], cfg: RowConfig) -> tp.Program:
        match self.kernel, self.backward:
            case "rms_norm", False:
                return rms_norm.bind(v["x"], v["weight"], v["y"], cfg, eps=EPS)
            case "rms_norm", True:
                return rms_norm.bind_backward(
                    v["x"], v["weight"], v["dy"], v["dx"], v["parts"], cfg, eps=EPS
                )
            case "layer_norm", False:
                return layer_norm.bind(v["x"], v["weight"], v["bias"], v["y"], cfg, eps=EPS)
            case "layer_norm", True:
                return layer_norm.bind_backward(
                    v["x"], v["weight"], v["dy"], v["dx"], v["parts"], cfg, eps=EPS
                )
            case "softmax", False:
                return softmax.bind(v["x"], v["y"], cfg)
            case "softmax", True:
                return softmax.bind_backward(v["y"], v["dy"], v["dx"], cfg)
            case _, False:
                return cross_entropy.bind(v["x"], v["labels"], v["loss"], v["lse"], cfg)
        return cross_entropy.bind_backward(v["x"], v["labels"], v["lse"], v["dloss"], v["dx"], cfg)

    def compiled(self) -> timing.Launch:
        """PyTorch's compiler."""
        function = torch.compile(self._function, dynamic=False)
        more = self._more()

        def launch(i: int) -> None:
            self.results[COMPILED][i] = function(
                self.x[i], self.dy[i] if self.backward and self.dy else None, *more
            )

        return launch

    def quack(self) -> timing.Launch:
        """QuACK's kernel. Raises ImportError where there is none."""
        module, x, dy = importlib.import_module(f"quack.{_QUACK[self.kernel]}"), self.x, self.dy
        weight, bias, labels = self.weight, self.bias.float(), self.labels
        if self.kernel == "layer_norm":
            weight = weight.float()  # which it asks for
        rstd = [
            torch.rsqrt((v.float() ** 2).mean(-1) + EPS)
            for v in (x if self.kernel == "rms_norm" and self.backward else ())
        ]
        calls: dict[tuple[str, bool], Callable[[int], Any]] = {
            ("rms_norm", False): lambda i: module.rmsnorm_fwd(x[i], weight, eps=EPS)[:1],
            ("rms_norm", True): lambda i: module.rmsnorm_bwd(x[i], weight, dy[i], rstd[i])[:2],
            ("layer_norm", False): lambda i: (module.layernorm_fwd(x[i], weight, bias, EPS),),
            ("softmax", False): lambda i: (module.softmax_fwd(x[i]),),
            ("softmax", True): lambda i: (module.softmax_bwd(dy[i], x[i]),),
            ("cross_entropy", False): lambda i: module.cross_entropy_fwd(
                x[i], labels, return_lse=True
            )[:1],
            ("cross_entropy", True): lambda i: (
                module.cross_entropy_bwd(x[i], labels, self.dloss, self.lse[i]),
            ),
        }
        call = calls.get((self.kernel, self.backward))
        if call is None:
            raise ImportError(f"its backward {self.kernel} is not measured")

        def launch(i: int) -> None:
            self.results[QUACK][i] = tuple(call(i))

        return launch

    def wipe(self) -> None:
        """Makes all results NaN."""
        for results in self.results.values():
            for x in results:
                for tensor in x:
                    tensor.fill_(math.nan)

    def check(self, side: str, i: int = 0) -> Check:
        """How far a side's results of set `i` are from those in float64."""
        if i not in self._want:
            dy = self.dy[i].double() if self.backward and self.dy else None
            self._want = {i: self._function(self.x[i].double(), dy, *self._more(wide=True))}
        want = self._want[i]
        rel = largest = 0.0
        right = True
        for got, w in zip(self.results[side][i], want, strict=False):
            error = got.double() - w
            norm = float(w.norm()) or 1.0
            found = float(error.norm()) / norm
            most = float(error.abs().nan_to_num(nan=math.inf).max())
            right = right and found <= LIMITS[got.dtype]
            rel, largest = max(rel, found), max(largest, most / norm * math.sqrt(w.numel()))
        return Check(rel, largest, right)

    def sides(self, config: str) -> Sides:
        """Ours and the peers that can solve it."""
        launches, missing = {OURS: self.ours()}, {}
        for side, make in ((COMPILED, self.compiled), (QUACK, self.quack)):
            self.results[side] = [()] * self.sets
            try:
                launch = make()
                for i in range(self.sets):
                    launch(i)
                torch.cuda.synchronize()
                launches[side] = launch
            except Exception as error:  # ours is measured all the same
                del self.results[side]
                missing[side] = f"{type(error).__name__}: {error}".splitlines()[0]
        return Sides(config, self.sets, launches, self.wipe, self.check, missing)


_QUACK = {
    "rms_norm": "rmsnorm",
    "layer_norm": "rmsnorm",
    "softmax": "softmax",
    "cross_entropy": "cross_entropy",
}


def moved(kernel: str, settings: Mapping[str, Any]) -> float:
    """Bytes of the matrices that a call reads and writes once."""
    nbytes = settings["m"] * settings["n"] * tp.dtype(settings["dtype"]).nbytes
    if kernel == "cross_entropy":
        return float(nbytes * (2 if settings["backward"] else 1))
    return float(nbytes * (3 if settings["backward"] else 2))


def parse(kernel: str, text: str) -> tuple[int, int]:
    """A shape from "M,N"."""
    parts = text.split(",")
    if len(parts) == 2 and all(x.isdigit() and int(x) for x in parts):
        return int(parts[0]), int(parts[1])
    raise BindError(f"--shapes of {kernel} takes M,N, or standard; got {text!r}")


def _contests(
    kernel: str, given: Mapping[str, Any], shapes: Sequence[str], chip: tp.Chip, seed: int
) -> list[Contest]:
    wanted = [
        x for text in shapes for x in (STANDARD if text == "standard" else (parse(kernel, text),))
    ]
    spec = SPECS[kernel]
    base = spec.settings | dict(given)
    if {"m", "n"} & given.keys():
        wanted.append((base["m"], base["n"]))
    directions = (base["backward"],) if "backward" in given else (False, True)
    found = []
    for backward in directions:
        for m, n in wanted or STANDARD:
            here = dict(given) | {"m": m, "n": n, "backward": backward}
            settings, _ = spec.configure(here, chip)
            found.append(
                Contest(
                    f"{m}×{n}, {'backward' if backward else 'forward'}",
                    here,
                    0.0,
                    functools.partial(_open, kernel, settings, seed),
                    moved(kernel, settings),
                    functools.partial(RowOperands, kernel, settings, seed),
                )
            )
    return found


def _open(kernel: str, settings: Mapping[str, Any], seed: int) -> Sides:
    torch.cuda.empty_cache()
    operands = RowOperands(kernel, settings, seed)
    cfg, default = operands.cfg.as_dict(), RowConfig().as_dict()
    letters = {"threads": "t", "warpgroups": "w", "parts": "p", "cluster": "c"}
    text = " ".join(f"{letter}{cfg[name]}" for name, letter in letters.items())
    rest = [
        f"{name}={cfg[name]}" for name in ("blocks", "ctas", "ahead") if cfg[name] != default[name]
    ]
    return operands.sides(" ".join([text, *rest]))


def contests_of(kernel: str) -> Callable[..., list[Contest]]:
    """What `tilepipe bench` measures of a kernel: (settings, shapes, chip, seed) -> contests."""
    return functools.partial(_contests, kernel)
