"""Kernels that are wrong by one thing: how they are made, what becomes of them, and why some are as
good as before.
"""
