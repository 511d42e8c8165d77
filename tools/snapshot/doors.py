"""Every place where the snapshot reaches into the repository, so that a tree in which things have
moved needs changes here only.

Each door has the places it may lead to, the newest first; what the older trees have stays in the
list, so that one version of the tool runs on all of them. Entries are keyed by names of this
package, never by those of a tree.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import importlib
import importlib.util
import io
import linecache
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# A kernel of ours -> (name in the registry, settings that choose it, architecture), the newest
# first.
KERNELS: dict[str, list[tuple[str, dict[str, Any], str]]] = {
    "gemm.sm90": [("gemm", {}, "sm_90a")],
    "gemm.sm100": [("gemm", {"arch": "sm100"}, "sm_100a"), ("blackwell_gemm", {}, "sm_100a")],
    "blockwise.sm90": [("gemm_blockwise", {}, "sm_90a"), ("blockwise_fp8_gemm", {}, "sm_90a")],
    "blockwise.sm100": [
        ("gemm_blockwise", {"arch": "sm100"}, "sm_100a"),
        ("blockwise_fp8_gemm", {"form": "blackwell"}, "sm_100a"),
    ],
    "block_scaled.sm100": [
        ("gemm_block_scaled", {}, "sm_100a"),
        ("block_scaled_gemm", {}, "sm_100a"),
    ],
    "gated.sm90": [("gemm_gated", {}, "sm_90a")],
    "stream_k.sm90": [("gemm_stream_k", {}, "sm_90a")],
    "quantised.sm90": [("gemm_quantised", {}, "sm_90a")],
    "rms_norm.sm90": [("rms_norm", {}, "sm_90a")],
    "layer_norm.sm90": [("layer_norm", {}, "sm_90a")],
    "softmax.sm90": [("softmax", {}, "sm_90a")],
    "cross_entropy.sm90": [("cross_entropy", {}, "sm_90a")],
    "grouped.sm90": [("gemm_grouped", {}, "sm_90a"), ("grouped_gemm", {}, "sm_90a")],
    "grouped_blockwise.sm90": [("gemm_grouped_blockwise", {}, "sm_90a")],
    "k_grouped_blockwise.sm90": [("gemm_k_grouped_blockwise", {}, "sm_90a")],
    "k_grouped.sm90": [("gemm_k_grouped", {}, "sm_90a")],
    "attention.sm90": [("attention", {}, "sm_90a"), ("attention_forward", {}, "sm_90a")],
    "attention_decode.sm90": [("attention_decode", {}, "sm_90a")],
    "append_kv.sm90": [("append_kv", {}, "sm_90a")],
    "attention_backward.sm90": [("attention_backward", {}, "sm_90a")],
    "attention.sm100": [
        ("attention", {"arch": "sm100"}, "sm_100a"),
        ("attention_forward", {"form": "blackwell"}, "sm_100a"),
    ],
}
SETTINGS: dict[str, list[str]] = {}  # a setting of ours -> its newer names, where it has any

REGISTRIES = ["tilepipe.registry.catalog", "tilepipe.kernels.registry"]
LIBRARY_PRINTER = ["tilepipe.ir.printer"]
MUTANTS = ["tilepipe.check.mutation.mutants"]
JUDGING = ["tilepipe.check.mutation.judging"]
CHECKING = ["tilepipe.check"]
SIMULATING = ["tilepipe.sim"]
CUDA = ["tilepipe.cuda"]

# Lists of cases: key -> modules that have `CASES` of things with `name` and `make(rng) -> (program,
# ...)`.
CASES: dict[str, list[str]] = {
    "scalar": ["tests.cases.scalars", "tests.scalar_cases"],
    "lane": ["tests.cases.lanes"],
    "copy": ["tests.cases.copies", "tests.copy_cases"],
    "sync": ["tests.cases.synchronisation", "tests.sync_cases"],
    "grid": ["tests.cases.grid", "tests.grid_cases"],
    "between_ctas": ["tests.cases.between_ctas"],
    "first_rows": ["tests.cases.first_rows"],
    "row_fragment": ["tests.cases.row_fragments"],
    "reduction": ["tests.cases.reductions"],
    "number": ["tests.cases.numbers", "tests.number_cases"],
    "fragment": ["tests.cases.fragments", "tests.fragment_cases"],
    "halves": ["tests.cases.halves"],
    "scan": ["tests.cases.scans"],
    "columns": ["tests.cases.columns"],
    "bits": ["tests.cases.bits"],
    "power": ["tests.cases.powers"],
    "dequantised": ["tests.cases.dequantised"],
    "mma": ["tests.cases.mma", "tests.mma_cases"],
    "packed": ["tests.cases.packed_operands"],
    "tmem": ["tests.cases.tensor_memory", "tests.tmem_cases"],
    "block_scale": ["tests.cases.block_scales", "tests.block_scale_cases"],
}
# Tests that plant mistakes, and tests that print or compile kernels: what of these a tree has is
# run.
PLANTED = ["tests/scenarios", "tests/examples"]
PRINTED = [
    "tests/kernels",
    "tests/ops",
    "tests/pipelines",
    "tests/conformance",
    "tests/cuda",
    "tests/gpu",
    "tests/lang",
    "tests/testing",
]

METHODS = {"greedy": "one execution", "single-execution": "one execution"}


class Missing(Exception):
    """A door leads nowhere in this tree."""


def module(places: Sequence[str]) -> Any:
    """The first of these modules that the tree has."""
    for place in places:
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not (
                place == error.name or place.startswith(error.name + ".")
            ):
                raise
    raise Missing(f"none of {', '.join(places)}; say in {Path(__file__).name} where it is now")


def _spec(key: str) -> tuple[Any, dict[str, Any], str]:
    registry = module(REGISTRIES)
    for name, chosen, arch in KERNELS[key]:
        spec = registry.KERNELS.get(name)
        if (
            spec is not None
            and all(setting in spec.settings for setting in chosen)
            and arch in spec.archs
        ):
            return spec, chosen, arch
    raise Missing(
        f"no kernel for {key!r} among {', '.join(registry.KERNELS)}; say in {Path(__file__).name}"
        " what it is called now"
    )


def _settings(spec: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        next((n for n in SETTINGS.get(name, []) if n in spec.settings), name): value
        for name, value in settings.items()
    }


def arch_of(key: str) -> str:
    """The architecture of a kernel."""
    return KERNELS[key][0][2]


@dataclass(frozen=True)
class Made:
    """A program, and the array that it writes."""

    program: Any
    output: Any


def shipped(key: str, settings: Mapping[str, Any], seed: int = 0) -> Made:
    """A shipped kernel with settings and random operands."""
    spec, chosen, _ = _spec(key)
    config, _ = spec.configure({**chosen, **_settings(spec, settings)}, None)
    case = spec.make(config, seed)
    return Made(case.program, case.output)


def instances(key: str, settings: Mapping[str, Any]) -> list[Any]:
    """The programs that `tilepipe check` decides for a kernel with these settings."""
    spec, chosen, _ = _spec(key)
    _, found = spec.instances({**chosen, **_settings(spec, settings)})
    return [instance.make() for instance in found]


def examples(tree: Path) -> dict[str, Any]:
    """The program of each example: its `main(0)`."""
    found = {}
    for path in sorted((tree / "examples").glob("[0-9]*.py")):
        spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        with contextlib.redirect_stdout(io.StringIO()):
            found[path.stem] = loaded.main(0)
    return found


def cases() -> Iterator[tuple[str, Any]]:
    """(key, case) of every list of small kernels."""
    for key, places in CASES.items():
        for case in module(places).CASES:
            yield f"{key}/{case.name}", case


def small_kernel() -> Any:
    """The small kernel of the mutation tests, bound."""
    return module(["tests.support.check.copies", "tests.mutation.kernels"]).program()


# -- programs --------------------------------------------------------------------------


def kernel_of(program: Any) -> Any:
    """The IR of a program."""
    return program.kernel


def text_of(kernel: Any) -> str:
    """A kernel as text."""
    text: str = module(LIBRARY_PRINTER).text(kernel)
    return text


def source_of(kernel: Any, arch: str | None) -> str:
    """A kernel as CUDA C++."""
    text: str = module(CUDA).source(kernel, arch)
    return text


def cubin_of(program: Any, arch: str) -> bytes:
    """A program compiled, without the library's cache."""
    os.environ["TILEPIPE_CACHE_DIR"] = "off"
    compiled: bytes = program.compile(arch).data
    return compiled


def arguments_of(program: Any) -> str:
    """The size of a launch and the shapes of its arguments, for telling instances apart."""
    launch = program.launch_args
    return repr(
        (launch.grid, launch.chip.sms, [getattr(arg, "shape", arg) for arg in launch.args.values()])
    )


def errors() -> type[Exception]:
    """The base of what the library raises on purpose."""
    import tilepipe as tp

    return tp.TilepipeError


def line_of(error: Any) -> str:
    """The statement that an error is about."""
    loc = getattr(error, "loc", None)
    return statement_at(loc.file, loc.line) if loc is not None else ""


@functools.cache
def _statements(file: str) -> list[ast.stmt]:
    try:
        tree = ast.parse(
            "".join(linecache.getlines(file))
        )  # which has text that tests compile, too
    except SyntaxError:
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def statement_at(file: str, line: int) -> str:
    """The innermost statement of a line, in one line however it is wrapped; of a compound one its
    head.
    """
    inside = [s for s in _statements(file) if s.lineno <= line <= (s.end_lineno or s.lineno)]
    if not inside:
        return linecache.getline(file, line).strip()
    found = copy.copy(max(inside, key=lambda s: s.lineno))
    for name in ("body", "orelse", "finalbody", "handlers", "decorator_list"):
        if getattr(found, name, None):
            setattr(found, name, [])
    return ast.unparse(found).strip()


# -- verdicts --------------------------------------------------------------------------


def bounds(seconds: float, traces: int = 100_000) -> Any:
    """When a check gives up."""
    return module(CHECKING).Bounds(traces=traces, seconds=seconds)


def verdict_of(verdict: Any, kernel: Any) -> dict[str, Any]:
    """A verdict as it is compared: no seconds, no wording."""
    found = {
        "verdict": verdict.verdict,
        "method": METHODS.get(verdict.method, verdict.method),
        "executions": verdict.traces,
        "states": verdict.states,
    }
    for fault in verdict.faults[:1]:
        found |= {"fault": fault.kind, "line": line_text(fault.loc, kernel)}
    return found


def line_text(short: str, kernel: Any) -> str:
    """The text of a line that is given as `gemm.py:41`: of the op of the kernel that comes from
    it.
    """
    if not short:
        return ""
    for block in (kernel.setup, *(role.body for role in kernel.roles)):
        for loc in _locations(block):
            if loc.short == short:
                return statement_at(loc.file, loc.line)
    return "?"


def _locations(block: Any) -> Iterator[Any]:
    for op in block.ops:
        yield op.loc
        for name in ("body", "then", "orelse"):
            inner = getattr(op, name, None)
            if inner is not None and hasattr(inner, "ops"):
                yield from _locations(inner)


# -- mutants ---------------------------------------------------------------------------


def mutants(program: Any) -> list[Any]:
    """Every mutant of a program's kernel; each has a `kernel`."""
    return list(module(MUTANTS).mutants(kernel_of(program)))


def outputs(program: Any) -> Any:
    """What the program computes, for telling a mutant's results apart."""
    return module(JUDGING).outputs(program.launch_args)


def judged(mutant: Any, program: Any, reference: Any) -> dict[str, Any]:
    """What becomes of a mutant, as it is compared."""
    limits = replace(bounds(20.0, 20_000), steps=6_000)
    outcome = module(JUDGING).judge(mutant, program.launch_args, reference, bounds=limits)
    found = {"fate": outcome.fate, "executions": outcome.traces, "states": outcome.states}
    return found | (
        {"fault": outcome.kind, "line": line_text(outcome.loc, mutant.kernel)}
        if outcome.kind
        else {}
    )
