"""Raft: one log of commands, the same on every voter (docs/protocols/raft.md).

`core` is a pure state machine that takes messages and ticks and says what to do; `driver` persists,
sends and applies. Everything else is one idea of the core each.
"""
