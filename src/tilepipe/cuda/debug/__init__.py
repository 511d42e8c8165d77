"""Hangs on the GPU: the waits of a kernel by number, the record that a debug build fills when one
of them does not end, and the message that explains it.
"""
