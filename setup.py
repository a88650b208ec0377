"""What pyproject.toml cannot say: every package that is found, and what is stored beside them."""

from setuptools import find_packages, setup

STORED = ["clusterfl_core.stored", "clusterfl_core.ledger"]

setup(packages=[*find_packages(include=["clusterfl_core*"]), *STORED])
