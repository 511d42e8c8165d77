"""Guard rails for a redesign: what the compiler, the simulator and the checker answer today, as
hashes in one JSON file.
"""
