"""Checking a launch over all its interleavings."""

from tilepipe.check.counterexamples.retelling import retold as retold
from tilepipe.check.decide import check as check
from tilepipe.check.decide import replay as replay
from tilepipe.check.verdict import Bounds as Bounds
from tilepipe.check.verdict import Fault as Fault
from tilepipe.check.verdict import Pick as Pick
from tilepipe.check.verdict import Reductions as Reductions
from tilepipe.check.verdict import Step as Step
from tilepipe.check.verdict import Verdict as Verdict
from tilepipe.check.verdict import together as together
