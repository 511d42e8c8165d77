"""Memories of the machine: shared, distributed, global and tensor memory, and registers."""
