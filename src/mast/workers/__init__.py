"""Run work in supervised child processes."""
