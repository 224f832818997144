"""Many points: what is asked about each, who solves it, the file of results, their summary."""
