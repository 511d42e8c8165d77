"""How a fault comes about: the shortest schedule, the table of its steps, and the file that keeps
it.
"""
