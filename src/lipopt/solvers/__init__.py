"""Solvers: arrays in, vectors and a status out. None of them knows what a network is."""
