"""Attention of a few query tokens over a cache of keys and values: `sm90`."""
