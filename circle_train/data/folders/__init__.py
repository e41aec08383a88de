"""Folders whose sub-folders are classes, however many files they hold."""
