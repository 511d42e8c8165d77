"""Counterexamples: performing a schedule again (`replaying`), shortening it (`shortening`),
recording its steps (`recording`), choosing those that the fault depends on (`relevant_steps`),
printing them (`text`), and keeping them in a file (`saved`).
"""
