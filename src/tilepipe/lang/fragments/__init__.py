"""Fragments: matrices in the registers of a warpgroup, and how they reach memory."""
