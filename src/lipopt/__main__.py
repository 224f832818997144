"""`python -m lipopt`."""

from .cli.app import main

main()
