import numpy as np
import pytest
from networks import gaussian_weights

from lipopt import LipoptError, certified_radius, certify, load


@pytest.fixture(scope="module")
def network():
    return load(
        gaussian_weights([4, 10, 8, 3], seed=1),
        biases=[0.1 * np.ones(10), np.zeros(8), np.zeros(3)],
    )


@pytest.mark.parametrize("seed", range(3))
def test_class_is_kept_within_the_radius(network, seed):
    rng = np.random.default_rng(seed)
    point = rng.standard_normal(4)
    label = int(network(point).argmax())
    radius = certified_radius(network, point, label)
    assert 0 < radius <= 1
    attacks = point + radius * rng.choice([-1.0, 1.0], (2000, 4))
    assert (network(attacks).argmax(axis=1) == label).all()


def test_wrong_class_and_linear_network():
    linear = load([np.array([[1.0, 0.0], [0.0, 1.0]])])
    assert certified_radius(linear, [2.0, 1.0], 1) == 0.0
    radius = certified_radius(linear, [2.0, 1.0], 0, precision=1e-6)  # x_0 > x_1 up to radius 1/2
    assert 0.499999 < radius < 0.5
    assert certified_radius(linear, [2.0, 1.0], 0, largest=0.25) == 0.25
    assert 99 < certified_radius(linear, [200.0, 1.0], 0) < 99.5  # there is no limit of its own
    (row,) = certify(linear, [[2.0, 1.0]], labels=[1], certified_radius=True)
    assert (row.status, row.proof, row.radius, row.broken_radius) == ("broken", "center", 0.0, 0.0)


def test_bad_input(network):
    with pytest.raises(LipoptError, match="out of range"):
        certified_radius(network, np.zeros(4), 3)
    with pytest.raises(LipoptError, match="two outputs"):
        certified_radius(gaussian_weights([4, 3, 1]), np.zeros(4), 0)
    with pytest.raises(LipoptError, match="about one input of shape"):
        certified_radius(network, np.zeros((3, 4)), 0)
    with pytest.raises(LipoptError, match="outside the clip range"):
        certified_radius(network, np.full(4, 2.0), 0, clip=(0, 1))
    with pytest.raises(LipoptError, match="largest radius"):
        certified_radius(network, np.zeros(4), 0, largest=0)
    with pytest.raises(LipoptError, match="precision"):
        certified_radius(network, np.zeros(4), 0, precision=0)
