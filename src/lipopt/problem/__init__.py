"""From a network and a question to the derivative problem that every method bounds."""
