"""The language kernels are written in: binding, tracing, roles, values, control flow, memory views,
fragments.
"""
