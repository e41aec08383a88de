"""What of a model is worth training on these data: proposed by Fisher's information, decided by trials, within a budget."""
