"""The language of kernels: how a Python function is traced into a program.

`context` holds the members of `ctx`, `tracing` the trace itself; the other packages hold what those
members make: values, control flow, memory views, fragments, tensor memory, stage handles.
"""
