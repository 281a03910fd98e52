"""Settings of every test: hypothesis is derandomized in the project's checks."""

from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("default")
