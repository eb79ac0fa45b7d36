"""Experiments: each figure and table of the papers, each comparison with a peer.

An experiment is a module of this package with `SUMMARY: str`, one line, and
`run(lab: Lab) -> Report`; its name is the module's with dashes (`swell.lab.experiment`).
"""
