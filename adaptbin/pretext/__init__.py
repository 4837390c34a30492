"""What the autoencoder is trained to predict, and how its input is corrupted."""
