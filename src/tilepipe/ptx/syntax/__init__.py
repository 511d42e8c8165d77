"""PTX text to a module of functions, variables and instructions."""
