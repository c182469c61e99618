"""Review page: a FastAPI application and its static pages."""
