"""The PTX wrappers that the printed code calls."""
