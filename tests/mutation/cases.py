"""What the campaign mutates: every shipped kernel in its families, and every example, on instances
as small as `tilepipe check`'s.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.examples.ladder import EXAMPLES, NAMES, load
from tilepipe.ir import printer
from tilepipe.ir.program import Launch, TensorArg
from tilepipe.registry.catalog import KERNELS
from tilepipe.registry.instances import SMS
from tilepipe.registry.settings import Setting


@dataclass(frozen=True)
class Case:
    """A kernel in one configuration. `launches()`: its instances; a mutant is caught where one of
    them catches it.
    """

    kernel: str
    name: str
    launches: Callable[[], list[Launch]]


_SMALL: dict[str, Setting] = {"bm": 64, "bn": 32, "bk": 32, "stages": 2, "consumers": 1}
_TWO: dict[str, Setting] = _SMALL | {"bm": 128, "consumers": 2}
_SM100: dict[str, Setting] = {"arch": "sm100", "bm": 128, "bn": 32, "bk": 32, "stages": 2}
_GROUPED: dict[str, Setting] = _SMALL | {"split": "random"}

OF_ROWS = ("rms_norm", "layer_norm", "softmax", "cross_entropy")
FAMILIES: dict[str, dict[str, dict[str, Setting]]] = {
    "gemm": {
        "one consumer": _SMALL,
        "two consumers, groups of K tiles": _TWO | {"k_group_size": 2},
        "ping-pong": _TWO | {"bm": 64, "schedule": "pingpong"},
        "cluster along M": _SMALL | {"cluster": 2},
        "cluster along N": _SMALL | {"cluster_n": 2},
        "split K": _SMALL | {"split_k": 2},
        "parts of K": _SMALL | {"k_parts": 2},
        "parts of K, cluster along M": _SMALL | {"k_parts": 2, "cluster": 2},
        "swapped, gelu": _SMALL | {"swap": "ab", "activation": "gelu", "bn": 64},
        "fp8, promoted": _SMALL | {"dtype": "float8_e4m3", "accumulate": "promote", "bk": 64},
        "float32 out, three stages": (
            _SMALL | {"out_dtype": "float32", "stages": 3, "bn": 64, "store_slots": 1}
        ),
        "sm_100, static": _SM100 | {"scheduler": "static"},
        "sm_100, cluster launch control": _SM100 | {"accumulators": 1},
        "sm_100, pairs, cluster launch control": _SM100 | {"cta_group": 2, "cluster": 2},
        "sm_100, split K, static": _SM100 | {"scheduler": "static", "split_k": 2},
        "sm_100, multicast, static": (
            _SM100 | {"scheduler": "static", "cluster": 2, "accumulators": 1, "store_slots": 1}
        ),
    },
    "gemm_blockwise": {
        "sm_90": {"bm": 64, "bn": 32, "stages": 2, "consumers": 1},
        "sm_90, cluster": {"bm": 64, "bn": 32, "stages": 2, "consumers": 1, "cluster": 2},
        "sm_100": {"arch": "sm100", "bm": 128, "bn": 32, "stages": 2, "scheduler": "static"},
        "sm_100, pairs": {
            "arch": "sm100",
            "bm": 128,
            "bn": 32,
            "stages": 2,
            "cta_group": 2,
            "cluster": 2,
        },
    },
    "gemm_block_scaled": {
        "mxfp8": {"bn": 64, "stages": 2, "scheduler": "static"},
        "nvfp4, pairs": {
            "kind": "nvfp4",
            "bn": 64,
            "bk": 64,
            "stages": 2,
            "cta_group": 2,
            "cluster": 2,
        },
    },
    "attention": {
        "turns, registers": {
            "d": 64,
            "bn": 32,
            "consumers": 2,
            "order": "turns",
            "store": "registers",
            "heads": 1,
        },
        "free, tile, causal": {
            "d": 64,
            "bn": 32,
            "consumers": 1,
            "order": "free",
            "store": "tile",
            "causal": True,
            "schedule": "single",
            "qk_stages": 1,
            "heads": 1,
            "lse": False,
        },
        "dynamic": {
            "d": 64,
            "bn": 32,
            "consumers": 1,
            "schedule": "dynamic",
            "store": "tile",
            "q_stages": 2,
            "heads": 1,
            "lse": False,
        },
        "packed, causal": {
            "lengths": "70:97,0:20,130:160",
            "d": 64,
            "bn": 32,
            "consumers": 1,
            "store": "tile",
            "causal": True,
            "schedule": "persistent",
            "heads": 1,
        },
        "block mask, window": {
            "block_mask": "64x32:60",
            "d": 64,
            "bn": 32,
            "consumers": 1,
            "store": "tile",
            "causal": True,
            "left": 150,
            "schedule": "persistent",
            "heads": 1,
            "lse": False,
        },
        "8 bits, promoted": {
            "dtype": "float8_e4m3",
            "scales": True,
            "d": 64,
            "bn": 32,
            "consumers": 1,
            "accumulate": "promote",
            "schedule": "persistent",
            "heads": 1,
        },
        "sm_100": {"arch": "sm100", "d": 64, "bn": 32, "stages": 2, "heads": 1},
        "sm_100, causal": {
            "arch": "sm100",
            "d": 64,
            "bn": 32,
            "stages": 2,
            "heads": 1,
            "causal": True,
        },
    },
    "attention_decode": {
        "default": {"d": 64, "bn": 32, "stages": 2, "ctas": 1},
        "columns": {"queries": "columns", "d": 64, "bn": 64, "stages": 2, "ctas": 1},
        "pages, two tokens": {
            "d": 64,
            "bn": 32,
            "stages": 2,
            "ctas": 1,
            "page": 16,
            "tokens": 2,
            "lse": False,
        },
    },
    "attention_backward": {
        "any order": {"d": 64},
        "causal, in turns": {"d": 64, "causal": True, "deterministic": True},
    },
    "gemm_gated": {
        "two consumers": _TWO | {"bn": 64},
        "ping-pong": _TWO | {"bm": 64, "bn": 64, "schedule": "pingpong"},
        "cluster, gelu": _SMALL | {"cluster": 2, "activation": "gelu"},
    },
    "gemm_quantised": {
        "one consumer": {"bm": 64, "bn": 16, "stages": 2, "consumers": 1, "k_group_size": 1},
        "shared K": {
            "bm": 64,
            "bn": 16,
            "stages": 2,
            "consumers": 1,
            "k_group_size": 1,
            "split_k": 2,
        },
    },
    "gemm_stream_k": {"one consumer": _SMALL},
    **{
        kernel: {
            f"{kernel}, {'backward' if backward else 'forward'}": {
                "threads": 32,
                "warpgroups": 1,
                "parts": 4,
                "cluster": 2,
                "backward": backward,
            }
            for backward in (False, True)
        }
        for kernel in OF_ROWS
    },
    "gemm_grouped": {
        "one consumer": _SMALL,
        "ping-pong": _TWO | {"bm": 64, "schedule": "pingpong"},
        "cluster": _SMALL | {"cluster": 2},
        "padded": _SMALL | {"form": "padded"},
    },
    "gemm_grouped_blockwise": {
        "rows": {"bm": 64, "bn": 32, "stages": 2, "consumers": 1},
        "padded": {"bm": 64, "bn": 32, "stages": 2, "consumers": 1, "form": "padded"},
    },
    "gemm_k_grouped_blockwise": {
        "one consumer": {"bm": 64, "bn": 32, "stages": 2, "consumers": 1},
        "cluster": {"bm": 64, "bn": 32, "stages": 2, "consumers": 1, "cluster": 2},
    },
    "gemm_k_grouped": {
        "one consumer": _SMALL | {"bn": 64},
        "cluster": _SMALL | {"bn": 128, "cluster": 2},
    },
}

# extents of further instances, which reach what the others do not
MORE: dict[tuple[str, str], list[dict[str, Setting]]] = {
    ("attention", "sm_100"): [{"s_q": 512, "s_kv": 150}],
    ("attention", "sm_100, causal"): [
        {"s_q": 300, "s_kv": 300},
        {"s_q": 512, "s_kv": 86},
    ],
}

# rows whose maximum grows much, to be rescaled
STEEP = {("attention", "sm_100"), ("attention", "sm_100, causal")}


# Rung 10 is rung 05 with tests in place of waits. A mutant of it whose tests no longer count as
# waits explores all their answers. Rungs 12 and 13 have nothing that synchronises.
NOTHING_TO_MUTATE = {"append_kv"}  # a kernel without anything that synchronises
LEFT_OUT = ("10_asking_before_waiting", "12_conversion", "13_next_token")


# Families that are newer than docs/generated/mutants.md: `make mutants`, which writes that page of
# all families, leaves this empty.
NOT_ON_THE_PAGE = {
    ("attention", "dynamic"),
    ("attention", "packed, causal"),
    ("gemm", "parts of K"),
    ("gemm", "parts of K, cluster along M"),
    ("gemm_grouped", "padded"),
    *(
        (kernel, name)
        for kernel in (
            "attention_decode",
            "gemm_grouped_blockwise",
            "gemm_k_grouped",
            "gemm_k_grouped_blockwise",
        )
        for name in FAMILIES[kernel]
    ),
    ("attention", "block mask, window"),
    *(("attention_backward", name) for name in FAMILIES["attention_backward"]),
    ("attention", "8 bits, promoted"),
}


def cases() -> list[Case]:
    """All of them, in a fixed order."""
    shipped = [
        Case(kernel, name, functools.partial(_shipped, kernel, name))
        for kernel, families in FAMILIES.items()
        for name in families
    ]
    return [
        *shipped,
        *(
            Case("examples", name, functools.partial(_example, name))
            for name in NAMES
            if name not in LEFT_OUT
        ),
    ]


def _shipped(kernel: str, name: str) -> list[Launch]:
    _, instances = KERNELS[kernel].instances(FAMILIES[kernel][name])
    for extents in MORE.get((kernel, name), []):
        instances = KERNELS[kernel].instances(FAMILIES[kernel][name] | extents)[1] + instances
    launches = [instance.make().launch_args for instance in reversed(instances)]
    for q in [launch.args["q"] for launch in launches if (kernel, name) in STEEP]:
        assert isinstance(q, TensorArg)
        q.array[...] = q.array * 16
    first = launches[0].kernel
    if kernel in OF_ROWS:  # whose trace depends on how many columns a thread holds
        launches = [x for x in launches if printer.text(x.kernel) == printer.text(first)]
    assert {printer.text(launch.kernel) for launch in launches} == {printer.text(first)}, (
        kernel,
        name,
    )
    launches = [replace(launch, kernel=first) for launch in launches]  # a mutant is one of all
    if launches[0].grid <= SMS or len(launches) != 2:
        return launches
    # clusters that fetch their work: one at a time, where they go round the ring of answers
    few, many = launches
    size = first.cluster_size
    return [
        few,
        replace(many, grid=size * (many.grid // size // 2 + 1), chip=replace(many.chip, sms=size)),
    ]


def _example(name: str) -> list[Launch]:
    with contextlib.redirect_stdout(io.StringIO()):
        return [load(EXAMPLES / f"{name}.py")(0).launch_args]
