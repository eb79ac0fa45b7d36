"""Checkers: what must be true, apart from the workloads that make things happen."""
