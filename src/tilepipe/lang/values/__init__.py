"""Traced scalars, the variables of a kernel, and their operators."""
