"""Arrays, outward rounding, positive semidefinite matrices, BLAS threads: below all mathematics."""
