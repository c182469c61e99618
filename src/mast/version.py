"""Version of the package."""

__version__ = "0.2.0.dev0"

STARTER = "starter"
"""Detector that is installed with MAST, the default of `mast detect` and the start of `mast train`."""

INCLUDED_MODELS = (STARTER,)
"""Models that are installed with MAST. Their names are valid wherever a model's location is; a folder of such a name is
`./starter`."""
