"""What pm.sample adds to a draw, in the paper's setting with latent layers left out.

The difference between long and short runs, so that compilation and summaries do not count.
"""

import pymc as pm

import pymc_nnsteps as nns
from tests.benchmarks.problems import chain, teacher
from tests.benchmarks.timing import milliseconds

SHORT, LONG = 10, 510


def main() -> None:
    model, state = teacher(0)
    with model:
        step = nns.Gibbs()

    def sample(draws: int) -> None:
        pm.sample(
            draws,
            tune=0,
            chains=1,
            step=step,
            initvals=state,
            random_seed=0,
            model=model,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
            var_names=["W1", "b1", "W2", "b2"],
        )

    advance = chain(step, state)

    def loop() -> None:
        for _ in range(LONG - SHORT):
            advance()

    times = milliseconds(
        {"loop": loop, "long": lambda: sample(LONG), "short": lambda: sample(SHORT)},
        calls=1,
        repeats=5,
    )
    in_loop = times["loop"] / (LONG - SHORT)
    in_sample = (times["long"] - times["short"]) / (LONG - SHORT)
    print(f"  {in_loop:6.2f} ms per draw in a loop over step.step")
    print(f"  {in_sample:6.2f} ms per draw in pm.sample")
    print(f"  pm.sample / loop = {in_sample / in_loop:.2f}")


if __name__ == "__main__":
    main()
