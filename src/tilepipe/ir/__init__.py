"""The program that every reader reads: expressions, operands, ops, roles. Knows no reader and no
tracer.
"""
