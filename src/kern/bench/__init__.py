"""Measure an executable: decode steps, rounds of speculation, single launches."""
