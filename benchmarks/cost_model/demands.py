"""What the simulator says that the kernels of `times.jsonl` ask of a chip, appended to
`demands.jsonl`: what `fit.py` reads. It needs no GPU, and a core for half an hour.

    PYTHONPATH=src python benchmarks/cost_model/demands.py
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from tilepipe.registry.catalog import find

HERE = Path(__file__).parent


def main() -> None:
    """See the head of the file."""
    file = HERE / "demands.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    known = {(x["kernel"], x["settings"]) for x in map(json.loads, lines)}
    for line in (HERE / "times.jsonl").read_text().splitlines():
        measured = json.loads(line)
        about = {name: measured[name] for name in ("kernel", "settings")}
        if tuple(about.values()) in known:
            continue
        case = find(measured["kernel"]).make(measured["config"], 0)
        found = {n: round(x, 6) for n, x in asdict(case.program.run().demand).items()}
        with file.open("a") as out:
            out.write(json.dumps(about | found) + "\n")
        print(*about.values(), found, flush=True)


if __name__ == "__main__":
    main()
