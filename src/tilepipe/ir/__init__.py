"""The program that every reader reads: expressions, operands, ops, roles. It depends on no reader
and no tracer.
"""
