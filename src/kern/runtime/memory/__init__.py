"""Where everything of a manifest is in memory: sizes, lifetimes, the plan, the arenas, the addresses."""
