"""Trains a DSpark draft on a target's own generations. Needs torch."""
