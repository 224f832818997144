"""`python -m lipopt`."""

from .cli import main

main()
