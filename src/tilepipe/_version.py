"""The version of tilepipe, which is part of the name of every compiled kernel that is kept."""

__version__ = "0.1.0"
