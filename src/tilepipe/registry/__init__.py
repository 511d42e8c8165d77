"""What the command line, the checker and the benchmarks need of each shipped kernel: its name, its
settings, random operands, and the small instances that are checked.
"""
