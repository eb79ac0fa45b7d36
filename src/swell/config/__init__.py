"""Configurations: versions made of deltas, pushed to every container that is interested."""
