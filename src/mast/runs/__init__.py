"""Run detection over archives: plan, parts, workers, engines, manifest, results."""
