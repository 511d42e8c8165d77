"""The trace of a kernel: open blocks, emission of ops, and what a traced block may not do."""
