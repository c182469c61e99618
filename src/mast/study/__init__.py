"""Create study files, and track the artifacts in a study's work folder."""
