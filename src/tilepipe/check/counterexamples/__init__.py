"""Counterexamples: performing a schedule again (`replaying`), shortening it (`shortening`),
choosing the steps that the fault depends on (`relevant_steps`), printing them (`text`), and keeping
them in a file (`saved`).
"""
