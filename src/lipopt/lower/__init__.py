"""Lower bounds: gradients of the network, and points of the problem that upper bounds relax."""
