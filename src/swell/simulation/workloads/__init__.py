"""Workloads: what happens in a simulation, apart from the checkers that judge it."""
