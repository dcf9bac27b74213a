"""Where modules are tested that have no ``test_<module>`` of their own.

A part that is seen only by what it makes is tested with that: the forms of Gaussian blocks with the
law that draws them, layers with the builders that add them. ``tests/test_package.py`` fails on a
module that is neither here nor has a file of tests, and on an entry that is out of date.
"""

TESTED_IN = {
    "models/test_bad_input": ["arguments", "models/parts/context", "models/parts/layers"],
    "diagnostics/test_convergence": ["diagnostics/draws"],
    "laws/test_gaussian": ["gaussian/forms", "gaussian/layout", "gaussian/observation"],
    "laws/test_effects": ["graphs/centred"],
    "graphs/test_affine": ["graphs/linear_terms", "graphs/rearranging"],
    "graphs/test_rows": ["graphs/row_axes"],
    "graphs/test_structure": [
        *("graphs/errors", "graphs/search", "graphs/values"),
    ],
    "gaussian/test_labels": ["compile/linear_algebra", "compile/ops", "gaussian/bands"],
    "compile/test_graph_translation": ["compile/graph_statements"],
    "compile/test_compiling": ["compile/native"],
    "compile/test_rewriting": ["compile/files"],
    "compile/test_translation": ["compile/expressions", "compile/jit"],
    "random/test_backends": ["compile/in_numba", "random/op"],
    "moves/test_interweaving": ["moves/loops/interweaving", "moves/loops/rows"],
    "moves/test_interwoven_gates": ["moves/loops/interwoven_gates"],
    "moves/test_interwoven_kernels": ["moves/loops/interwoven_kernels"],
    "moves/test_outgoing_weights": ["moves/loops/outgoing_weights"],
    "moves/test_layer_trajectories": ["moves/loops/layer_density", "moves/loops/leapfrog"],
    "moves/test_gated_trajectories": [
        *("moves/loops/gated_density", "moves/loops/gated_trajectories"),
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
    "moves/test_residual_scales": ["moves/loops/residual_scales", "random/lattice"],
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
