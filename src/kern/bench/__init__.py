"""Measuring an executable: decode steps, rounds of speculation, each launch."""
