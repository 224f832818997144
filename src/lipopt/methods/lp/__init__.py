"""The LP hierarchy: polynomial, sparsity patterns, Krivine's certificates."""
