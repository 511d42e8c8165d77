"""Devices, arrays and launches, through cuda.bindings and cuda.core."""
