"""Files and folders of the user's: opened safely, kept in a cache, written as a whole."""
