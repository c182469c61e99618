"""Plot spectrograms and figures, and render self-contained HTML pages, in one style."""
