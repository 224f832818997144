"""What is asked about: networks, their activations, domains and norms."""
