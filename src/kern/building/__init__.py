"""Building an artifact folder from a checkpoint and a target."""
