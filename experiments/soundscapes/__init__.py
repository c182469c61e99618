"""Soundscapes with exact boxes: real isolated calls over real backgrounds, on days and at sites that never meet."""
