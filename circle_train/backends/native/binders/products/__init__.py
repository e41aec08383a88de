"""Dense layers, batched products and attention."""
