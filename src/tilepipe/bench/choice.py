"""How a benchmark picks configurations."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilepipe.errors import BindError
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig


@dataclass(frozen=True)
class Choice:
    """How configurations are picked: "chosen", by the heuristic alone; "tuned", what tuning
    remembers, else the heuristic's; "best", the fastest of the heuristic's first `count`; "given",
    `config`.
    """

    how: str = "chosen"
    count: int = 0
    config: GemmConfig | BlockwiseGemmConfig | None = None

    @classmethod
    def parse(cls, text: str) -> Choice:
        """From "chosen", "tuned" or "best-of-N".

        Raises:
            BindError: it is none of these.
        """
        if text in ("chosen", "tuned"):
            return cls(text)
        found = re.fullmatch(r"best-of[-: ]?(\d{1,4})", text)
        if found is None or int(found[1]) < 1:
            raise BindError(
                f"--config takes chosen, tuned or best-of-N, for example best-of-8; got {text!r}"
            )
        return cls("best", int(found[1]))
