"""From recorder cards to sound: find and audit files, read what recorders say of themselves, decode any span."""
