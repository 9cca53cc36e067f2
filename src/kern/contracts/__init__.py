"""What providers and callers agree on beyond the manifest: names of buffers and programs, and settings files."""
