"""Write and read the prepared audio: 16 kHz audio of all recordings, with random access."""
