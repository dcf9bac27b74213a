"""Random models: what a reader accepts is exact, and what it declines it declines by NotConjugate.

The short run is the same in every run of the tests; the long one takes other seeds. A failing
case is printed as the smallest program that fails in the same way.
"""

import numpy as np
import pytest

from tests.conditionals.fuzz import FAMILIES, failure_of, minimal

SHORT, LONG = 6, 60
"""Cases of each family."""


def run(family, seeds):
    failures = []
    for seed in seeds:
        case = FAMILIES[family](np.random.default_rng([seed, *family.encode()]))
        failure = failure_of(case)
        if failure is not None:
            smallest = minimal(case, failure) if len(failures) < 3 else failure
            failures.append(f"# {family}, seed {seed}\n{smallest}")
    assert not failures, "\n\n".join(["", *failures])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_few_random_models(family):
    run(family, range(SHORT))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_random_models(family):
    run(family, range(SHORT, SHORT + LONG))
