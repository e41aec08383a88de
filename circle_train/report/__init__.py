"""What is told of models and trainings: plans, curves, tables of errors, and one page with all of it."""
