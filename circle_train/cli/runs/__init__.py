"""What a command leaves behind: a folder for each run, which can be gone on with, and files that are in nobody's way."""
