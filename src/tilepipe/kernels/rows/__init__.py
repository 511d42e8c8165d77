"""What the kernels share that work on the rows of a matrix, each read once: norms, softmax, cross
entropy.
"""
