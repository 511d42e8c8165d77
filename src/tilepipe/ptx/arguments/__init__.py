"""Arguments for the parameters of a kernel, and their bytes."""
