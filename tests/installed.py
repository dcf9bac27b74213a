"""Draws from networks of the builders, by an installed package: run by ``make dist``."""

from pathlib import Path

import numpy as np
import pymc as pm

import pymc_nnsteps as nns


def main() -> None:
    assert Path(__file__).parents[1] / "pymc_nnsteps" != Path(nns.__file__).parent, "a source tree"
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    y = np.abs(X[:, 0]) + 0.1 * rng.normal(size=50)
    for build in (nns.intermediate_noise_mlp, nns.bow_tie, nns.hierarchical_mlp, nns.wide_mlp):
        with build(X, y, hidden=(4,)):
            idata = pm.sample(
                20,
                tune=20,
                chains=2,
                cores=1,
                random_seed=1,
                progressbar=False,
                compute_convergence_checks=False,
            )
            values = nns.predict(idata, X)
        assert np.isfinite(values).all()
        print(f"{build.__name__}: {values.sizes}")


if __name__ == "__main__":
    main()
