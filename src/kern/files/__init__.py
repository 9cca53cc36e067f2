"""The user's files and folders: opened safely, kept in a cache, written as a whole."""
