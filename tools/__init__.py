"""Commands that maintain the documentation and check the package."""
