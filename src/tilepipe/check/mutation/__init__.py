"""Mutants: kernels that differ from a kernel by one synchronisation mistake.

- `mutants`, `value_mutants`: which mistakes there are; `rewriting`: how a kernel with one is made.
- `judging`: what the checker finds in a mutant.
- `redundancy`, `reordering`, `observations`: why a mutant in which it finds nothing is equivalent
  to the kernel.
"""
