"""From what a method found to a file that lipcheck verifies (spec/certificate.md)."""
