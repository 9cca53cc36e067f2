"""The memory of an executable: sizes, lifetimes, the plan, the arenas, the addresses."""
