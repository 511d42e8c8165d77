"""Ops of asynchronous units: wgmma and commits."""
