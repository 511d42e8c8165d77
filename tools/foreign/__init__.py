"""Kernels of our own in the languages of others, compiled to PTX as test data of the reader.

`python -m tools.foreign.compile_triton` and `python -m tools.foreign.compile_cute` write
`tests/ptx/foreign/data`; they run in an environment that has the compiler and NumPy, and need no
GPU.
"""
