"""IR to Python: one generator function for each role of a kernel."""
