"""What is measured over the data: means, and counts by class."""
