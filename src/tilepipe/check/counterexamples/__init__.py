"""Counterexamples: performing a schedule again (`replaying`), shortening it (`shortening`),
choosing the steps that the fault depends on and printing them (`relevant_steps`), and keeping them
in a file (`saved`).
"""
