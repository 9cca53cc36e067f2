"""What providers and callers agree on beyond the manifest: names of buffers and programs, and files of settings."""
