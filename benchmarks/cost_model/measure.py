"""Times of the kernels of `configs.py` on device 0, appended to a file of one line for each.

    PYTHONPATH=src python benchmarks/cost_model/measure.py FILE --seconds 60

It goes on where the file ends, in a random order. A time is the median of bursts, blocks of
launches of about 2 ms with a pause before each, whose operands rotate through more memory than L2
holds. A line: {"kernel", "settings", "config": all of them, "card", "us"}.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from configs import CONFIGS
from tilepipe.bench import timing
from tilepipe.cuda.runtime import driver
from tilepipe.cuda.runtime.staging import staged
from tilepipe.errors import TilepipeError
from tilepipe.ir.program import TensorArg
from tilepipe.registry.catalog import Case, find

_PAUSE_S, _REPEATS, _MOST_SETS = 4e-3, 5, 24


class Drawn(np.random.Generator):
    """Normal values from a pool: what matters of them is that they are not all alike."""

    pool = np.random.default_rng(0).standard_normal(1 << 20, dtype=np.float32)

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        """As of the base class."""
        return np.resize(self.pool, size).astype(dtype, copy=False)


def main() -> None:
    """See the head of the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    lines = given.file.read_text().splitlines() if given.file.exists() else []
    known = {(x["kernel"], x["settings"]) for x in map(json.loads, lines)}
    np.random.default_rng = lambda seed=None: Drawn(np.random.PCG64(0))
    timing.BLOCK_S, timing.IDLE_S = 2e-3, _PAUSE_S
    chip = driver.chip(0)
    torch.cuda.init()
    for kernel, settings in random.Random(0).sample(CONFIGS, len(CONFIGS)):
        if (kernel, settings) in known or time.monotonic() > until:
            continue
        spec = find(kernel)
        try:
            config, _ = spec.configure(spec.parse(settings.split()), chip)
            us = timed(spec.make(config, 0))
        except TilepipeError as error:
            print(f"{kernel} {settings}: {error}", flush=True)
            continue
        line = {"kernel": kernel, "settings": settings, "config": config, "card": chip.name}
        with given.file.open("a") as file:
            file.write(json.dumps(line | {"us": round(us, 3)}) + "\n")


def timed(case: Case) -> float:
    """Microseconds of a launch."""
    launch = case.program.launch_args
    arrays = [x.array for x in launch.args.values() if isinstance(x, TensorArg)]
    sets = min(timing.sets_for(sum(x.nbytes for x in arrays)), _MOST_SETS)
    launcher = case.program.launcher()
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(staged(launch, launcher.ordinal, ())) for _ in range(sets)]
        packed = [launcher.pack(tuple(x[name] for name in launcher.tensors)) for x in places]

        def once(i: int) -> None:
            launcher.launch_packed(packed[i], torch.cuda.current_stream().cuda_stream)

        block = timing.block(once, sets)
        times = timing.burst({"": block}, _REPEATS)[""].times_us
    return statistics.median(times)


if __name__ == "__main__":
    main()
