"""Deciding a launch over all its interleavings.

Each part imports only those above it:

- `verdict`: results, and the options of a check. `key_encoding`: states as bytes.
- `proofs/`: facts about a kernel that make the search smaller.
- `engine/`: executions in a chosen order (`execution`), their causal order and its races
  (`causal_order`), and the searches over executions (`race_reversal`) and states (`state_search`).
- `counterexamples/`: schedules that lead to a fault, shortened, printed and saved.
- `decide`: the entry point; a single execution that proves the launch, or an exploration.
- `mutation/`: kernels with one mistake. `parallel/`: many instances, in processes or on a Dask
  cluster.
- `sensitivity`: what each line of a kernel is for.
"""

from tilepipe.check.counterexamples.replaying import (
    replay as replay,
    replay_with_steps as replay_with_steps,
)
from tilepipe.check.decide import check as check
from tilepipe.check.verdict import (
    Bounds as Bounds,
    Fault as Fault,
    Reductions as Reductions,
    ScheduleStep as ScheduleStep,
    Step as Step,
    Verdict as Verdict,
    combine as combine,
)
