"""Rung 13: the next token.

    tokens[i] = argmax of logits[i], logs[i] = log of its probability, softmax(logits[i])[tokens[i]]

New: reductions that give a place. The four warps of a warpgroup share a row (layout "rows:128"),
which is longer than their registers: it comes in parts of 2,048 columns. Fragments (1, 1) keep
what is known of the parts before: the greatest number, its column and a sum of exponentials. Where
several tokens have the greatest logit, the first is taken: `argmax` says so of one part, and
`best > top` of all.

Still slow: one warpgroup goes through a row, and waits for each part. `tilepipe.kernels.rows` keeps
rows in registers, and shares them among warpgroups and CTAs.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilepipe as tp

PART = 2048  # columns that the warpgroup holds at once
LAYOUT = "rows:128"


@tp.kernel(grid=lambda logits: logits.shape[0])
def next_token(
    ctx: tp.Context, logits: tp.GlobalTensor, tokens: tp.GlobalTensor, logs: tp.GlobalTensor
) -> None:
    """Greedy sampling: one CTA for each row of logits."""

    @ctx.role("row", warpgroups=1)
    def row() -> None:
        i, columns = ctx.block_id, logits.shape[1]
        top = ctx.fragment(shape=(1, 1), layout=LAYOUT)
        token = ctx.fragment(shape=(1, 1), dtype="int32", layout=LAYOUT)
        total = ctx.fragment(shape=(1, 1), layout=LAYOUT)
        top.fill(float("-inf"))
        token.fill(0)
        total.fill(0)
        for start in ctx.range(0, columns, PART):
            part = ctx.load_global(logits, (i, start), (1, PART), layout=LAYOUT)
            # what lies outside the tensor was loaded as zero
            there = start + ctx.col_index(PART, layout=LAYOUT) < columns
            x = ctx.fragment(ctx.select(there, part.to("float32"), float("-inf")))
            best, column = x.argmax()
            token.set(ctx.select(best > top, start + column, token))
            new = ctx.fragment(top.maximum(best))
            # tokens that are ruled out have -inf, maybe in a whole part: -inf - (-inf) is no number
            base = ctx.fragment(ctx.select(new > float("-inf"), new, 0.0))
            total.set(total * (top - base).apply("exp") + (x - base).apply("exp").sum())
            top.set(new)
        ctx.store_global(tokens, (i,), token)
        ctx.store_global(logs, (i,), -total.apply("log"))


def main(seed: int = 0) -> tp.Program:
    """Runs the kernel on the simulated GPU, verifies it and returns the program."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((3, 5000)).astype(ml_dtypes.bfloat16)
    logits[1, [4321, 77, 2500]] = 6  # the first of three
    logits[2, :3000] = -np.inf
    tokens, logs = np.zeros(3, np.int32), np.zeros(3, np.float32)
    program = next_token.bind(logits, tokens, logs)
    run = program.run(seed=seed)
    x = logits.astype(np.float64)
    largest = x.max(1)
    assert np.array_equal(tokens, x.argmax(1))
    assert np.allclose(logs, -np.log(np.exp(x - largest[:, None]).sum(1)), rtol=1e-5)
    print("The next tokens of 3 rows of 5000 logits: right.", *run.roles, sep="\n  ")
    return program


if __name__ == "__main__":
    main()
