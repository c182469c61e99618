"""Simulated soundscapes with exact boxes: isolated real calls mixed into real backgrounds, on disjoint days and sites."""
