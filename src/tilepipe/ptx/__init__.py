"""The front end for PTX: a parser, and an interpreter that runs PTX on the simulated GPU."""
