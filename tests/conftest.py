"""Shared by all tests."""

import browser as browsing
import pytest


@pytest.fixture(scope="session")
def browser():
    """One headless browser for all page tests."""
    with browsing.chromium() as started:
        yield started
