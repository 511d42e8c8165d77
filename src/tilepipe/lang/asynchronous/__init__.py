"""Ops of the asynchronous units: TMA copies, wgmma and commits."""
