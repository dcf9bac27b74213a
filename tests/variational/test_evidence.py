"""The evidence lower bound against draws from the approximation and the model's own density."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from pymc_nnsteps.variational.ascent import elbo
from pymc_nnsteps.variational.draws import draw_layer
from pymc_nnsteps.variational.rows import activations, statistics
from tests.cases import slow
from tests.variational.networks import small_model, some_sweeps

DRAWS = 1500


def law(q):
    """A generalised inverse Gaussian law of SciPy's."""
    if np.all(q.lambda2 == 0):
        return stats.invgamma(-q.nu, scale=q.delta2 / 2)
    b = np.sqrt(q.delta2 * q.lambda2)
    return stats.geninvgauss(q.nu, b, scale=np.sqrt(q.delta2 / q.lambda2))


def conditional(before, own, row, a_before):
    """Mean and covariance of a layer given the one before, from their joint moments."""
    shared = len(own.cov) == 1
    mean, cov = own.mean[row], own.cov[0 if shared else row]
    if own.cross is None:
        return np.broadcast_to(mean, (DRAWS, len(mean))), cov
    slope = np.linalg.solve(before.cov[min(row, len(before.cov) - 1)], own.cross[row])
    return mean + (a_before - before.mean[row]) @ slope, cov - slope.T @ own.cross[row]


@pytest.mark.parametrize(
    ("family", "hidden", "n_outputs"),
    [
        ("student_t", (2,), 1),
        slow("laplace", (2, 2), 1),
        slow("normal_gamma", (2,), 2),
        slow("nig", (2, 2, 2), 1),
        slow("gaussian", (2, 2), 2),
    ],
)
def test_evidence_is_that_of_draws(family, hidden, n_outputs):
    """All constants, and the hyperparameters as they are read: the model's density is PyMC's."""
    model = small_model(family, hidden, n_obs=3, n_outputs=n_outputs)
    reading, layers, gates, _ = some_sweeps(model, sweeps=4)
    network, rng = reading.network, np.random.default_rng(1)
    chain = activations(network, layers, reading.inputs, reading.targets, gates)
    bound = elbo(network, layers, statistics(network, chain, gates, reading.targets))

    point, log_q, correction = {}, np.zeros(DRAWS), np.zeros(DRAWS)
    x = np.broadcast_to(reading.inputs, (DRAWS, *reading.inputs.shape))
    for index, (names, layer) in enumerate(zip(reading.names, layers, strict=True)):
        drawn = draw_layer(layer, DRAWS, rng)
        rows = np.concatenate([drawn["b"][:, :, None], drawn["W"]], axis=2)
        for unit, (mean, cov) in enumerate(zip(layer.mean, layer.cov, strict=True)):
            log_q += stats.multivariate_normal(mean, cov).logpdf(rows[:, unit])
        log_q += stats.invgamma(layer.alpha, scale=layer.beta).logpdf(drawn["eta_sq"]).sum(-1)
        point |= {names["W"]: drawn["W"], names["b"]: drawn["b"]}
        point[f"{names['eta_sq']}_log__"] = np.log(drawn["eta_sq"])
        if layer.tau is not None:
            log_q += law(layer.tau).logpdf(drawn["tau"])
            log_q += law(layer.psi).logpdf(drawn["psi"]).sum((1, 2))
            point |= {f"{names['tau']}_log__": np.log(drawn["tau"])}
            point |= {f"{names['psi']}_log__": np.log(drawn["psi"])}
        if "gamma" not in names:
            continue
        logit, tilt = gates[index].logit, gates[index].tilt
        opened = rng.random((DRAWS, *logit.shape)) < expit(logit)
        log_q += np.where(opened, -np.logaddexp(0, -logit), -np.logaddexp(0, logit)).sum((1, 2))
        a = np.empty(opened.shape)
        for row in range(len(logit)):
            mean, cov = conditional(chain[index], chain[index + 1], row, x[:, row])
            noise = rng.multivariate_normal(np.zeros(len(cov)), cov, size=DRAWS)
            a[:, row] = mean + noise
            log_q += stats.multivariate_normal(np.zeros(len(cov)), cov).logpdf(noise)
        # Polya-Gamma variables enter linearly: their mean does, in place of the Bernoulli law.
        z = x @ drawn["W"].transpose(0, 2, 1) + drawn["b"][:, None]
        u, half = z / network.temperature, opened - 0.5
        omega = np.tanh(tilt / 2) / (2 * tilt)
        augmented = -np.log(2) + half * u - 0.5 * omega * (u**2 - tilt**2)
        augmented -= np.logaddexp(tilt / 2, -tilt / 2) - np.log(2)
        correction += (augmented + np.logaddexp(0, -2 * half * u)).sum((1, 2))
        point |= {names["gamma"]: opened.astype("int64"), names["a"]: a}
        x = a
    density = model.compile_logp(jacobian=False, mode="FAST_COMPILE")
    log_p = [density({name: value[i] for name, value in point.items()}) for i in range(DRAWS)]
    values = np.array(log_p) + correction - log_q
    error = values.std() / np.sqrt(DRAWS)
    assert error < 0.5
    assert abs(values.mean() - bound) < 5 * error
