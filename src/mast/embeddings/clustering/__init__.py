"""Cluster the events of a run and report the clusters."""
