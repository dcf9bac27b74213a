"""Run the benchmarks named by letters on the command line, or all."""

import sys
from importlib import import_module

BENCHMARKS = {
    "a": "reference_setting",
    "b": "mnist",
    "c": "start",
    "d": "memory",
    "e": "overhead",
    "f": "kernels",
    "g": "wide",
    "h": "bow_tie",
    "i": "interweaving",
    "j": "thermalisation",
    "k": "variational",
    "l": "convolution",
    "m": "hamiltonian",
    "n": "shards",
    "o": "effects",
    "p": "threads",
    "q": "convergence",
    "r": "missing",
}


def main(letters: list[str]) -> None:
    unknown = sorted(set(letters) - set(BENCHMARKS))
    if unknown:
        known = ", ".join(f"{letter}: {name}" for letter, name in BENCHMARKS.items())
        raise SystemExit(f"There is no benchmark {', '.join(unknown)}. Known are {known}.")
    for letter in letters or BENCHMARKS:
        module = import_module(f"tests.benchmarks.{BENCHMARKS[letter]}")
        title = (module.__doc__ or "").splitlines()[0]
        print(f"\n({letter}) {title}", flush=True)
        module.main()


if __name__ == "__main__":
    main(sys.argv[1:])
