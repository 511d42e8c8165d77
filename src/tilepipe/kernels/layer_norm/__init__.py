"""The norm of rows to mean 0 and variance 1: `sm90`."""
