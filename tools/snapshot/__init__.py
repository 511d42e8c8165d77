"""What the compiler, the simulator and the checker answer, as hashes in one JSON file, with which a
change that must change nothing is compared.
"""
