"""The faults that the machine finds, and their messages."""
