"""From a path to a report: a manifest or a folder, read, verified, and every error located."""
