"""The paper's figures and tables, one module each: `python -m experiments NAME` makes them (see README.md)."""
