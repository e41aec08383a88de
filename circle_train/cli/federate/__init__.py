"""`circle-train federate`: a Flower app's folder, and what runs it without the network."""
