"""Deciding a launch over all its interleavings.

- `decide`: the entry point; a single execution that proves the launch, or an exploration.
- `engine/`: executions in a chosen order (`execution`), their causal order and its races
  (`causal_order`), and the searches over executions (`explorer`) and states (`state_search`).
- `proofs/`: facts about a kernel that make the search smaller.
- `counterexamples/`: schedules that lead to a fault, shortened, printed and saved.
- `mutation/` and `sensitivity`: kernels with one mistake, and what each line of a kernel is for.
- `parallel/`: many instances, in processes or on a Dask cluster.
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
