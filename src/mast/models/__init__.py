"""Networks and how they are kept: encoder, masked autoencoder, detector, checkpoints."""
