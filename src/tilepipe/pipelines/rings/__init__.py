"""Rings of stages in shared memory: producers and consumers of tiles."""
