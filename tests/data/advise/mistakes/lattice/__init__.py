"""A lattice Boltzmann method."""
