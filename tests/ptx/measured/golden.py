"""What an H100 has computed, as tests/golden keeps it: of each part of a case a digest of its
bytes, or, where the ISA bounds an error, the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from tests.ptx.measured.case import Bytes, Case, Part, digest

PATH = Path(__file__).parents[2] / "golden" / "ptx_measured_h100.npz"
PROGRAMS = 400  # random programs


@dataclass(frozen=True)
class Measured:
    """What is known of a part.

    Attributes:
        fingerprint: of its case; of a form 0: others in its kernel do not matter. digest: of exact
            results. raw: others.
    """

    fingerprint: int
    digest: int
    raw: Bytes | None


def key(case: Case, part: Part) -> str:
    """Of a form its own, of other parts that of the case."""
    return part.name if case.name.startswith("forms/") else case.name


def write(path: Path, found: Mapping[str, tuple[Case, Bytes]]) -> None:
    """Keeps results."""
    names, prints, digests, lengths, raws = [], [], [], [], []
    for case, output in found.values():
        for part in case.parts:
            names.append(key(case, part))
            prints.append(0 if case.name.startswith("forms/") else case.fingerprint)
            digests.append(digest(part, output) if part.rule.exact else 0)
            raw = output[:0] if part.rule.exact else output[part.begin : part.end]
            lengths.append(len(raw))
            raws.append(raw)
    np.savez_compressed(
        path, names=np.frombuffer("\n".join(names).encode(), np.uint8),
        fingerprints=np.array(prints, np.uint64), digests=np.array(digests, np.uint64),
        lengths=np.array(lengths, np.int64), raw=np.concatenate(raws),
    )  # fmt: skip


@cache
def measured() -> dict[str, Measured]:
    """All that is kept, by key."""
    with np.load(PATH) as file:
        data = {name: file[name] for name in file.files}
    names = data["names"].tobytes().decode().split("\n")
    ends = np.cumsum(data["lengths"])
    return {
        name: Measured(
            int(data["fingerprints"][i]), int(data["digests"][i]),
            data["raw"][ends[i] - data["lengths"][i] : ends[i]] if data["lengths"][i] else None,
        )
        for i, name in enumerate(names)
    }  # fmt: skip


def error(case: Case, part: Part, output: Bytes) -> float:
    """How far a part is off, in units of what is allowed: more than 1 is wrong."""
    kept = measured()[key(case, part)]
    assert kept.fingerprint in (0, case.fingerprint), f"{case.name} is another case than measured"
    if kept.raw is None:
        return 0.0 if digest(part, output) == kept.digest else np.inf
    return part.rule.error(output[part.begin : part.end], kept.raw)
