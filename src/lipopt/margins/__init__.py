"""Margins in balls: whether the label's output stays the largest, by the cheapest proof that shows it."""
