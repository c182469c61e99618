"""What people look at: one look for every spectrogram, plot and page."""
