"""Shipped kernels, a package each, which use the public API only. A package has a module for each
architecture, and `config`, `validation`, `heuristics` and `reference` as far as the kernel needs
them.
"""
