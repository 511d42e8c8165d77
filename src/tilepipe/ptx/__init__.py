"""A reader of PTX: parses it, and runs it on the simulated machine."""
