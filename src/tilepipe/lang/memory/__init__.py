"""Views of memory: shared tiles, elements and global tensors."""
