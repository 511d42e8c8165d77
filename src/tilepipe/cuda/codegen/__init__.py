"""IR to CUDA C++: one emitter for each class of op."""
