"""Handles of acquired stages, and the arrivals that are counted for them."""
