"""Human review of detections: review queues, verdicts, their storage, and the review page."""
