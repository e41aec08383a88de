"""From labelled samples to a trained model that says what it is: the whole course in one call."""
