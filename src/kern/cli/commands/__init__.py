"""The commands as functions of their options. Each imports what it needs when it runs."""
