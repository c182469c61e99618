"""Networks and checkpoints: encoder, masked autoencoder, detector, inference engines."""
