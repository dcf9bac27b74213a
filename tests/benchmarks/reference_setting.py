"""The paper's setting, n = 2084, 50-10-1, Delta = 1e-4: a sweep beside plain NumPy's.

Both start from the teacher's state.
"""

import pymc_nnsteps as nns
from tests.benchmarks.problems import chain, plain_gibbs, teacher
from tests.benchmarks.timing import milliseconds


def main() -> None:
    model, state = teacher(0)
    with model:
        contenders = {
            "Gibbs": chain(nns.Gibbs(interweave=False), state),
            "Gibbs, Numba": chain(
                nns.Gibbs(interweave=False, compile_kwargs={"mode": "NUMBA"}), state
            ),
        }
    plain = plain_gibbs(model, state, seed=1)
    if plain is None:
        print("  The plain NumPy sampler is not there: only the compiled sweep is timed.")
    else:
        contenders["NumPy"] = plain.sweep
    times = milliseconds(contenders, calls=100, repeats=15)
    for name, value in times.items():
        ratio = f", NumPy / this = {times['NumPy'] / value:.2f}" if plain else ""
        print(f"  {name:12} {value:6.2f} ms per sweep{ratio}")


if __name__ == "__main__":
    main()
