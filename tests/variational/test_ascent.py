"""Updates: none lowers the evidence, and each is a maximum of it in its own block."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit

from pymc_nnsteps.variational.ascent import (
    elbo,
    em_step,
    shared_law,
    update_noise,
    update_scales,
    update_weights,
)
from pymc_nnsteps.variational.factors import GIG, inverse
from pymc_nnsteps.variational.rows import (
    Activations,
    GateFactors,
    activations,
    statistics,
    update_gates,
)
from tests.cases import quick, slow
from tests.variational.networks import FAMILIES, small_model, some_sweeps

DEPTHS = [(), (3,), (3, 2), (2, 3, 2)]


@pytest.mark.parametrize("n_outputs", [slow(1), 2])
@pytest.mark.parametrize("hidden", quick(DEPTHS, [(), (3, 2)]))
@pytest.mark.parametrize("family", FAMILIES)
def test_no_update_lowers_the_evidence(family, hidden, n_outputs):
    """Each block of each of 30 sweeps from a start, and EM steps."""
    model = small_model(family, hidden, n_outputs=n_outputs)
    reading, layers, gates, _ = some_sweeps(model, sweeps=0)
    network, x, y = reading.network, reading.inputs, reading.targets
    trail = []

    def record(chain, gates):
        sums = statistics(network, chain, gates, y)
        trail.append(elbo(network, layers, sums))
        return sums

    for _ in range(30):
        chain = activations(network, layers, x, y, gates)
        record(chain, gates)
        new = update_gates(network, layers, chain)
        sums = record(
            chain, [GateFactors(b.logit, a.tilt) for a, b in zip(gates, new, strict=True)]
        )
        gates = new
        sums = record(chain, gates)
        for index, prior in enumerate(network.layers):
            seen = sums.layers[index]
            layers[index] = update_weights(prior, layers[index], seen, network.temperature)
            record(chain, gates)
            layers[index] = update_noise(prior, layers[index], seen)
            record(chain, gates)
            layers[index] = update_scales(prior, layers[index])
            record(chain, gates)
        if family != "gaussian":
            network = em_step(network, layers)
            record(chain, gates)
    trail = np.array(trail)
    assert np.all(np.diff(trail) > -1e-8 * np.abs(trail[1:])), np.diff(trail).min()
    assert trail[-1] > trail[0] + 0.1


def test_a_missing_covariance_lowers_the_evidence():
    """The printed eq. (15) is seen to be wrong: the test above has teeth."""
    reading, layers, gates, _ = some_sweeps(small_model("student_t", (3, 2), n_obs=40), sweeps=5)
    network, x, y = reading.network, reading.inputs, reading.targets
    chain = activations(network, layers, x, y, gates)
    sums = statistics(network, chain, gates, y)
    printed = statistics(network, [replace(a, cross=None) for a in chain], gates, y)
    right = [update_noise(*of) for of in zip(network.layers, layers, sums.layers, strict=True)]
    wrong = [update_noise(*of) for of in zip(network.layers, layers, printed.layers, strict=True)]
    best = elbo(network, right, sums)
    assert best > elbo(network, layers, sums)
    assert elbo(network, wrong, sums) < best - 1e-4


def assert_maximum(evidence, optimum, rng):
    """Nothing that a numerical search finds near an optimum is better, and it comes back to it."""
    best = evidence(optimum)
    away = optimum + 0.1 * rng.normal(size=optimum.shape)
    found = optimize.minimize(lambda v: -evidence(v), away, method="BFGS", options={"gtol": 1e-6})
    assert -found.fun < best + 1e-6
    assert -found.fun > best - 1e-4


def lower(root, size):
    """Triangular matrices from free numbers, with the logs of their diagonals."""
    out = np.zeros((*root.shape[:-1], size, size))
    rows, columns = np.tril_indices(size)
    out[..., rows, columns] = root
    diagonal = np.arange(size)
    out[..., diagonal, diagonal] = np.exp(out[..., diagonal, diagonal])
    return out


def free(cov):
    """The free numbers of covariances."""
    root = np.linalg.cholesky(cov)
    diagonal = np.arange(root.shape[-1])
    root[..., diagonal, diagonal] = np.log(root[..., diagonal, diagonal])
    rows, columns = np.tril_indices(root.shape[-1])
    return root[..., rows, columns]


@pytest.mark.parametrize("family", ["student_t", "nig", "gaussian"])
def test_weights_noise_and_scales_are_maxima(family):
    rng = np.random.default_rng(0)
    reading, layers, _, sums = some_sweeps(small_model(family, (2, 2)), sweeps=3)
    network = reading.network
    for index, prior in enumerate(network.layers):
        seen = sums.layers[index]

        def with_layer(layer, index=index):
            return elbo(network, [*layers[:index], layer, *layers[index + 1 :]], sums)

        new = update_weights(prior, layers[index], seen, network.temperature)
        units, width = new.mean.shape

        def of_rows(theta, new=new, units=units, width=width, with_layer=with_layer):
            mean, root = np.split(theta, [units * width])
            root = lower(root.reshape(units, -1), width)
            log_det = 2 * np.log(np.einsum("dii->di", root)).sum(axis=1)
            cov = root @ root.transpose(0, 2, 1)
            mean = mean.reshape(units, width)
            return with_layer(replace(new, mean=mean, cov=cov, log_det=log_det))

        assert_maximum(of_rows, np.concatenate([new.mean.ravel(), free(new.cov).ravel()]), rng)

        new = update_noise(prior, layers[index], seen)
        assert_maximum(
            lambda v, new=new, with_layer=with_layer: with_layer(replace(new, beta=np.exp(v))),
            np.log(new.beta),
            rng,
        )
        if family == "gaussian":
            continue
        new = update_scales(prior, layers[index])

        def of_psi(v, new=new, with_layer=with_layer):
            psi = GIG(new.psi.nu, np.exp(v).reshape(new.psi.delta2.shape), new.psi.lambda2)
            return with_layer(replace(new, psi=psi))

        assert_maximum(of_psi, np.log(new.psi.delta2).ravel(), rng)
        layer = replace(layers[index], tau=new.tau)

        def of_tau(v, layer=layer, with_layer=with_layer):
            tau = GIG(layer.tau.nu, np.exp(v[0]), layer.tau.lambda2)
            return with_layer(replace(layer, tau=tau))

        assert_maximum(of_tau, np.log(new.tau.delta2).reshape(1), rng)


@pytest.mark.parametrize("hidden", [(2,), (2, 2)])
def test_activations_and_gates_are_maxima(hidden):
    """Among all Gaussian chains through the layers, and all laws of gates and their weights."""
    rng = np.random.default_rng(0)
    model = small_model("laplace", hidden, n_obs=2, n_outputs=2)
    reading, layers, gates, _ = some_sweeps(model, sweeps=2)
    network, x, y = reading.network, reading.inputs, reading.targets
    chain = activations(network, layers, x, y, gates)
    depth = len(hidden)
    means = np.array([a.mean for a in chain[1:]])
    conditional = [np.broadcast_to(chain[1].cov, (2, 2, 2))]
    slopes = np.zeros((depth - 1, 2, 2, 2))
    for index in range(1, depth):
        before, own = chain[index], chain[index + 1]
        slopes[index - 1] = (np.linalg.inv(before.cov) @ own.cross).transpose(0, 2, 1)
        conditional.append(own.cov - slopes[index - 1] @ own.cross)

    def evidence_of(chain, gates):
        return elbo(network, layers, statistics(network, chain, gates, y))

    def of_chain(theta):
        mean, slope, root = np.split(theta, [means.size, means.size + slopes.size])
        root = lower(root.reshape(depth, 2, 3), 2)
        covs = root @ root.swapaxes(-1, -2)
        new = [Activations(x)]
        for index, part in enumerate(mean.reshape(means.shape)):
            log_det = 2 * np.log(np.einsum("nii->ni", root[index])).sum(axis=1)
            cov, cross = covs[index], None
            if index:
                M = slope.reshape(slopes.shape)[index - 1]
                cross = new[-1].cov @ M.transpose(0, 2, 1)
                cov = cov + M @ cross
            new.append(Activations(part, cov, cross, log_det))
        return evidence_of(new, gates)

    optimum = np.concatenate([means.ravel(), slopes.ravel(), free(np.array(conditional)).ravel()])
    np.testing.assert_allclose(of_chain(optimum), evidence_of(chain, gates), rtol=1e-10)
    assert_maximum(of_chain, optimum, rng)

    new = update_gates(network, layers, chain)
    logits = np.array([gate.logit for gate in new])
    tilts = np.log([gate.tilt for gate in new])

    def of_gates(theta):
        logit, tilt = theta.reshape(2, *logits.shape)
        return evidence_of(
            chain, [GateFactors(*of) for of in zip(logit, np.exp(tilt), strict=True)]
        )

    assert_maximum(of_gates, np.stack([logits, tilts]).ravel(), rng)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "gaussian"])
def test_em_step_is_a_maximum(family):
    reading, layers, _, sums = some_sweeps(small_model(family, (3,)), sweeps=3)
    network = em_step(reading.network, layers)
    law = shared_law(network)

    def of_hyperparameter(v):
        delta2 = law.delta2 if family in ("laplace", "normal_gamma", "nig") else np.exp(v[0])
        lambda2 = law.lambda2 if family == "student_t" else np.exp(v[0])
        tau = GIG(law.nu, np.asarray(delta2), np.asarray(lambda2))
        changed = tuple(replace(layer, tau=tau) for layer in network.layers)
        return elbo(replace(network, layers=changed), layers, sums)

    free = law.delta2 if family == "student_t" else law.lambda2
    assert_maximum(of_hyperparameter, np.log([float(free)]), np.random.default_rng(0))


@pytest.mark.parametrize("hidden", [(3,), (3, 2), (2, 3, 2)])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_activations_of_known_weights(hidden, n_outputs):
    """With point masses for weights, noise and gates this is a Gaussian smoother."""
    model = small_model("gaussian", hidden, n_obs=3, n_outputs=n_outputs)
    reading, layers, gates, _ = some_sweeps(model, sweeps=1)
    network, x, y = reading.network, reading.inputs, reading.targets
    layers = [replace(layer, cov=np.zeros_like(layer.cov)) for layer in layers]
    gates = [GateFactors(np.where(gate.logit > 0, 800.0, -800.0), gate.tilt) for gate in gates]
    chain = activations(network, layers, x, y, gates)
    for row in range(3):
        mean, cov = smoothed(network.temperature, layers, x[row], y[row], gates, row)
        first = 0
        for before, own, width in zip(chain, chain[1:], hidden, strict=False):
            here = slice(first, first + width)
            np.testing.assert_allclose(own.mean[row], mean[here], rtol=1e-8, atol=1e-10)
            its = own.cov[min(row, len(own.cov) - 1)]
            np.testing.assert_allclose(its, cov[here, here], rtol=1e-8, atol=1e-12)
            if own.cross is not None:
                above = slice(first - before.mean.shape[1], first)
                np.testing.assert_allclose(own.cross[row], cov[above, here], atol=1e-10)
            first += width


def smoothed(temperature, layers, x, y, gates, row):
    """Mean and covariance of all activations of a row, from their joint precision."""
    widths = [len(layer.mean) for layer in layers[:-1]]
    ends = np.cumsum([0, *widths])
    precision, shift = np.zeros((ends[-1], ends[-1])), np.zeros(ends[-1])
    for index, layer in enumerate(layers):
        W, b, e = layer.mean[:, 1:], layer.mean[:, 0], layer.noise_precision
        below = slice(ends[index - 1], ends[index]) if index else None
        own = slice(ends[index], ends[index + 1]) if index < len(widths) else None
        gate = np.ones(len(b)) if own is None else (gates[index].logit[row] > 0).astype(float)
        # (own - gate * (W below + b))^2 e, and the gates' own factor in z = W below + b.
        if own is not None:
            precision[own, own] += np.diag(e)
        if below is None:
            shift[own] += e * gate * (W @ x + b)
            continue
        precision[below, below] += (W.T * (e * gate)) @ W
        shift[below] -= W.T @ (e * gate * b)
        if own is None:
            shift[below] += W.T @ (e * y)
            continue
        precision[own, below] -= (e * gate)[:, None] * W
        precision[below, own] -= ((e * gate)[:, None] * W).T
        shift[own] += e * gate * b
        tilt = gates[index].tilt[row]
        omega = np.tanh(tilt / 2) / (2 * tilt) / temperature**2
        precision[below, below] += (W.T * omega) @ W
        shift[below] += W.T @ ((gate - 0.5) / temperature - omega * b)
    cov = np.linalg.inv(precision)
    return cov @ shift, cov


@pytest.mark.parametrize("size", [6, 9, 35])
def test_inverses_of_badly_scaled_matrices(size):
    """Also of sizes whose triangular roots are inverted by halves."""
    rng = np.random.default_rng(0)
    scale = 10.0 ** rng.uniform(-4, 4, size=(5, size))
    A = rng.normal(size=(5, size, 3 * size))
    gram = A @ A.transpose(0, 2, 1)
    precision = scale[:, :, None] * gram * scale[:, None]
    cov, log_det = inverse(precision)
    eye = (cov * scale[:, :, None] * scale[:, None]) @ gram
    np.testing.assert_allclose(eye, np.broadcast_to(np.eye(size), eye.shape), atol=1e-9)
    np.testing.assert_allclose(log_det, -np.linalg.slogdet(precision)[1])


def test_gates_without_doubt_are_normal_numbers():
    """Matrix products of subnormal ones take several times as long."""
    _, _, [gate], _ = some_sweeps(small_model("student_t", (3,), temperature=1e-4))
    assert np.finfo(float).tiny < np.min(expit(gate.logit)) < 1e-250
