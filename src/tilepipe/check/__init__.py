"""Deciding a launch over all its interleavings.

- `decide`: the entry point; a single execution that proves the launch, or an exploration.
- `engine/`: executions in a chosen order (`execution`), their causal order and its races
  (`causal_order`), and the searches over executions (`explorer`) and states (`state_search`).
- `proofs/`: facts about a kernel that make the search smaller.
- `counterexamples/`: schedules that lead to a fault, shortened, printed and saved.
- `mutation/` and `sensitivity`: kernels with one mistake, and what each line of a kernel is for.
- `parallel/`: many instances, in processes or on a Dask cluster.
"""

from tilepipe.check.counterexamples.replaying import replay as replay
from tilepipe.check.counterexamples.replaying import replay_with_steps as replay_with_steps
from tilepipe.check.decide import check as check
from tilepipe.check.verdict import Bounds as Bounds
from tilepipe.check.verdict import Fault as Fault
from tilepipe.check.verdict import Reductions as Reductions
from tilepipe.check.verdict import ScheduleStep as ScheduleStep
from tilepipe.check.verdict import Step as Step
from tilepipe.check.verdict import Verdict as Verdict
from tilepipe.check.verdict import combine as combine
