"""What the parameters of a kernel are given, and the bytes that they become."""
