import pytensor.tensor.basic
import pytensor.tensor.random.op
import pytest

from tests import lengths
from tests.zoo import ZOO


@pytest.mark.parametrize(
    "name",
    ["bow_tie_network", "effects_beside_a_network", "wide_network", "integers_beside_weights"],
)
def test_shapes_are_those_that_rewriting_finds(monkeypatch, name):
    """Tests of graphs that no user has: a shape that is known there and not here, or another."""
    read = []

    def both(shape):
        shape = list(shape)
        ours, theirs = lengths.static_shape(shape), lengths.by_rewriting(shape)
        assert tuple(ours[1]) == tuple(theirs[1])
        assert [length.type for length in ours[0]] == [length.type for length in theirs[0]]
        read.append(... not in map(lengths.stated, shape))
        return ours

    for module in (pytensor.tensor.basic, pytensor.tensor.random.op):
        monkeypatch.setattr(module, "infer_static_shape", both)
    ZOO[name]().logp()
    assert sum(read) > len(read) / 2
