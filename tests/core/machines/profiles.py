"""How long the state machines search: a little in every test run, much longer for `make prove`."""

import os
from typing import Final

from hypothesis import HealthCheck, settings

CHOOSE: Final = "KVSEAL_PROFILE"  # environment variable: "ci" or "prove"


def chosen() -> settings:
    """The profile for this run. Without a choice the search is short, and the same every time."""
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    common = settings(deadline=None, print_blob=True, suppress_health_check=slow)
    settings.register_profile("ci", common, max_examples=200, stateful_step_count=50, derandomize=True)
    settings.register_profile("prove", common, max_examples=2000, stateful_step_count=100)
    return settings.get_profile(os.environ.get(CHOOSE, "ci"))
