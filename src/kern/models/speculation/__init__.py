"""A draft model for a target: its config, checkpoint, weights and programs (DSpark, arXiv 2607.05147)."""
