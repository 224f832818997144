"""Solvers of convex problems: arrays in, a vector out. None knows what the problem is about, and none is trusted."""
