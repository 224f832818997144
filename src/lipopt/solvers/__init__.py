"""Solvers: arrays in, vectors and status out. None of them knows about networks."""
