"""Tools for working on the repository itself; no part of the package."""
