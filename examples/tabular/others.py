"""Bayesian trees and networks of other libraries."""

from itertools import pairwise

import numpy as np

from tabular.data import Split
from tabular.predictions import Predicted, normal, normals

HIDDEN = (16, 16, 16)


def pymc_bart(data: Split, seed: int) -> Predicted:
    """PyMC-BART: 50 trees, its default, and two chains of 500 draws after 500."""
    import pymc as pm
    import pymc_bart as pmb

    with pm.Model():
        X = pm.Data("X", data.X)
        f = pmb.BART("f", X, data.y)
        pm.Normal("y", f, pm.HalfNormal("sigma", 1.0), observed=data.y, shape=f.shape)
        options = {"random_seed": seed, "progressbar": False}
        idata = pm.sample(
            500, tune=500, chains=2, cores=1, compute_convergence_checks=False, **options
        )
        pm.set_data({"X": data.X_test})
        drawn = pm.sample_posterior_predictive(
            idata, sample_vars=["f"], var_names=["f"], predictions=True, **options
        )
    means = drawn["predictions"]["f"].values.reshape(-1, len(data.X_test))
    sds = np.broadcast_to(idata["posterior"]["sigma"].values.reshape(-1, 1), means.shape)
    return normals(means, sds, data.y_test, seed)


def stochtree(data: Split, seed: int) -> Predicted:
    """BART of stochtree: 200 trees, its default, and 1000 draws after ten warm-start forests."""
    from stochtree import BARTModel

    model = BARTModel()
    model.sample(
        X_train=data.X,
        y_train=data.y,
        X_test=data.X_test,
        num_gfr=10,
        num_mcmc=1000,
        general_params={"random_seed": seed, "num_threads": 1},
    )
    means = model.y_hat_test.T
    sds = np.broadcast_to(np.sqrt(model.global_var_samples)[:, None], means.shape)
    return normals(means, sds, data.y_test, seed)


def bde(data: Split, seed: int, *, members: int = 10) -> Predicted | np.ndarray:
    """Ensembles of ``sklearn-contrib-bde``: ten networks of four layers, as published."""
    import jax
    from bde import BdeClassifier, BdeRegressor
    from bde.loss import CategoricalCrossEntropy, GaussianNLL

    estimator = BdeClassifier if data.n_classes else BdeRegressor
    model = estimator(
        n_members=members,
        hidden_layers=[16] * 4,
        seed=seed,
        loss=CategoricalCrossEntropy() if data.n_classes else GaussianNLL(),
        epochs=1000,
        patience=20,
        warmup_steps=5000,
        n_samples=1000,
        n_thinning=10,
    )
    X, X_test = data.X.astype(np.float32), data.X_test.astype(np.float32)
    if data.n_classes:
        model.fit(X, data.y.astype(np.int32))
        return np.asarray(model.predict_proba(X_test))
    model.fit(X, data.y.astype(np.float32)[:, None])
    raw = np.asarray(model.predict(X_test, raw=True)).reshape(-1, len(X_test), 2)
    means, sds = raw[..., 0], np.asarray(jax.nn.softplus(raw[..., 1])) + 1e-6
    return normals(means, sds, data.y_test, seed)


def laplace(data: Split, seed: int, *, epochs: int = 1000) -> Predicted | np.ndarray:
    """Laplace's approximation at a trained network, its scales by the marginal likelihood."""
    import torch
    from laplace import Laplace

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    sizes = (data.X.shape[1], *HIDDEN, data.n_classes or 1)
    layers = [
        part for pair in pairwise(sizes) for part in (torch.nn.Linear(*pair), torch.nn.Tanh())
    ]
    network = torch.nn.Sequential(*layers[:-1])
    X, X_test = (torch.tensor(rows, dtype=torch.float32) for rows in (data.X, data.X_test))
    if data.n_classes:
        y, loss, task = torch.tensor(data.y), torch.nn.CrossEntropyLoss(), "classification"
    else:
        y = torch.tensor(data.y, dtype=torch.float32)[:, None]
        loss, task = torch.nn.MSELoss(), "regression"
    rows = torch.utils.data.TensorDataset(X, y)
    batches = torch.utils.data.DataLoader(rows, batch_size=128, shuffle=True)
    optimiser = torch.optim.Adam(network.parameters(), lr=5e-3, weight_decay=1e-4)
    for _ in range(epochs):
        for x, target in batches:
            optimiser.zero_grad()
            loss(network(x), target).backward()
            optimiser.step()
    posterior = Laplace(network, task, subset_of_weights="all", hessian_structure="kron")
    posterior.fit(batches)
    if data.n_classes:
        posterior.optimize_prior_precision(method="marglik")
        return posterior(X_test, link_approx="probit").detach().numpy()
    log_scales = torch.zeros(2, requires_grad=True)
    scales = torch.optim.Adam([log_scales], lr=0.1)
    for _ in range(200):
        scales.zero_grad()
        prior, sigma = log_scales.exp()
        (-posterior.log_marginal_likelihood(prior, sigma)).backward()
        scales.step()
    mean, variance = (part.detach().numpy().ravel() for part in posterior(X_test))
    noise = float(posterior.sigma_noise) ** 2
    return normal(mean, np.sqrt(variance + noise), data.y_test)
