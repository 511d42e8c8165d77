"""Shipped kernels, one file each, read top to bottom. They use the public API only. `registry`
lists them for the command line.
"""
