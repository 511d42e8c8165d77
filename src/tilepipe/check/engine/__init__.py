"""Executions of a launch, the orders of their steps, and the search through those that differ."""
