"""Where modules are tested that have no ``test_<module>`` of their own.

A part that is seen only by what it makes is tested with that: the forms of Gaussian blocks with the
law that draws them, layers with the builders that add them. ``tests/test_package.py`` fails on a
module that is neither here nor has a file of tests, and on an entry that is out of date.
"""

TESTED_IN = {
    "models/test_bad_input": ["arguments", "models/parts/context", "models/parts/layers"],
    "diagnostics/test_convergence": ["diagnostics/draws"],
    "laws/test_gaussian": [
        "gaussian/forms",
        *(
            "gaussian/layout",
            "gaussian/observation",
        ),
    ],
    "laws/test_effects": [
        *("gaussian/groups", "graphs/centred"),
    ],
    "graphs/test_affine": ["graphs/linear_terms", "graphs/rearranging"],
    "graphs/test_rows": ["graphs/row_axes"],
    "graphs/test_structure": [
        *("graphs/errors", "graphs/search", "graphs/values"),
    ],
    "kernels/test_gaussian": [
        *("kernels/bands", "kernels/chain", "kernels/labels"),
        *("kernels/lattice", "kernels/linear_algebra", "kernels/ops"),
    ],
    "kernels/test_graph_translation": ["kernels/graph_statements"],
    "kernels/test_compiling": ["kernels/native"],
    "kernels/test_rewriting": ["kernels/files"],
    "kernels/test_translation": ["kernels/expressions", "kernels/jit"],
    "random/test_backends": [
        *(
            "kernels/in_numba",
            "random/op",
        ),
    ],
    "moves/test_interweaving": [
        *("kernels/interweaving", "kernels/rows"),
    ],
    "moves/test_interwoven_gates": ["kernels/interwoven_gates"],
    "moves/test_interwoven_kernels": ["kernels/interwoven_kernels"],
    "moves/test_outgoing_weights": ["kernels/outgoing_weights"],
    "moves/test_layer_trajectories": [
        *("kernels/layer_density", "kernels/layer_trajectories", "kernels/leapfrog"),
    ],
    "moves/test_gated_trajectories": [
        "kernels/gated_density",
        "kernels/gated_trajectories",
    ],
    "laws/test_recognition": ["laws/conditional", "steps/explanation"],
    "laws/test_pairs": ["laws/densities"],
    "laws/test_correlated_effects": ["laws/multivariate"],
    "models/test_convolutional": ["models/parts/convolutions"],
    "models/test_hierarchical": ["models/parts/groups"],
    "models/test_intermediate_noise": [
        *("models/parts/data", "models/parts/inputs", "models/parts/scaffold"),
    ],
    "models/test_wide": ["models/parts/readout"],
    "models/test_bow_tie": ["models/parts/shrinkage"],
    "moves/test_residual_scales": ["random/lattice"],
    "laws/test_piecewise": ["network/activations"],
    "prediction/test_forward": ["prediction/blocks"],
    "prediction/test_log_likelihood": ["prediction/integration"],
    "prediction/test_kinds": ["prediction/laws"],
    "random/test_piecewise_normal": ["random/two_pieces"],
    "test_sklearn": ["estimator"],
    "runs/test_saving": ["runs/arguments"],
    "runs/test_sampling": [
        "runs/run",
        "runs/store",
        "runs/tasks",
    ],
    "sharded/test_shards": ["sharded/gaps", "sharded/sampling"],
    "steps/test_gibbs": ["steps/compiled", "steps/sweep"],
    "steps/test_hamiltonian": ["steps/flat"],
    "steps/test_verification": ["steps/stationarity"],
    "variational/test_fit": ["variational/approximation"],
    "variational/test_evidence": ["variational/draws"],
    "variational/test_ascent": ["variational/factors", "variational/rows"],
}
"""From a file of tests to the modules that it tests beside the one of its name."""
