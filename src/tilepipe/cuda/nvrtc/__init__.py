"""Compiling with NVRTC, the cache of cubins, and reading machine code."""
