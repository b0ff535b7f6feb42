import pytest


@pytest.fixture(autouse=True)
def jobs_end(request):
    """A test that fails in the middle of a job costs that test, not also the ones that wait for its devices."""
    system = request.getfixturevalue("system") if "system" in request.fixturenames else None
    yield
    if system is not None:
        system.cancel_all()
