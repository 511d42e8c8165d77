"""Attention: the configuration, the layouts of K and V, and the rings of their tiles."""
