"""What pyproject.toml cannot say: every package that is found, and the stored runs beside them."""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["clusterfl_core*"]), "clusterfl_core.stored"])
