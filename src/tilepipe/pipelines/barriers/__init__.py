"""Barriers in shared memory, and turns between groups of threads."""
