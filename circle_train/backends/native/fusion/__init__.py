"""What is computed together, a file for each; `joining` beside it is the list."""
