"""Any byte or token of an accepted pair of files may change: what is still verified must still be true.

The claim is tested as it stands, at pairs of points, on the network as lipopt reads it. Mutations of the network come with
the certificate's hash brought up to date, so that they reach the checker."""

import contextlib
import hashlib
import random

import numpy as np
import pytest
from lipcheck_files import pairs, verdict

from lipopt import LipoptError
from lipopt.model.network import Network

LARGEST = 10**300  # of the numbers of a domain at which claims are tried
ORDERS = {"linf": np.inf, "l2": 2, "l1": 1}


def mutated_bytes(data, rng):
    """One byte changed, removed or inserted."""
    place = rng.randrange(len(data))
    kind = rng.randrange(4)
    if kind == 0:
        return data[:place] + data[place + 1 :]
    if kind == 1:
        return data[:place] + bytes([rng.randrange(256)]) + data[place:]
    changed = data[place] ^ (1 << rng.randrange(8)) if kind == 2 else rng.randrange(256)
    return data[:place] + bytes([changed]) + data[place + 1 :]


def mutated_tokens(data, rng):
    """One token changed, removed, repeated or exchanged with another; or a line removed, repeated or exchanged."""
    separator = rng.choice([b" ", b"\n"])
    tokens = data.split(separator)
    i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    kind = rng.randrange(5)
    if kind == 0:
        del tokens[i]
    elif kind == 1:
        tokens.insert(j, tokens[i])
    elif kind == 2:
        tokens[i], tokens[j] = tokens[j], tokens[i]
    else:
        numbers = [k for k, token in enumerate(tokens) if token.lstrip(b"-").isdigit()]
        if numbers:
            k = rng.choice(numbers)
            value = int(tokens[k])
            tokens[k] = str(
                rng.choice([value + 1, value - 1, -value, 2 * value, value // 2, 0, 10**9])
            ).encode()
    return separator.join(tokens)


def floats(values):
    """Exact numbers as floats; those that no float is as large as are cut."""
    return np.array([float(min(max(v, -LARGEST), LARGEST)) for v in values])


def in_ball(ball, x):
    """Which points are inside, by a little more than rounding errors."""
    center = floats(ball.center)
    radii = floats(ball.radii)
    with np.errstate(all="ignore"):
        lengths = np.linalg.norm((x - center) / radii, ORDERS[ball.norm], axis=1)
    return lengths < 1 - 1e-9


def holds(network, claim):
    """The claim at random pairs of points of its domain, near and far."""
    rng = np.random.default_rng(0)
    n = network.input_size
    low, high = -4 * np.ones(n), 4 * np.ones(n)
    if claim.box is not None:
        low, high = map(floats, claim.box)
    x, y = rng.uniform(low, high, (2, 4000, n))
    y[2000:] = np.clip(x[2000:] + 1e-3 * (y[2000:] - x[2000:]), low, high)
    if claim.ball is not None:
        both = in_ball(claim.ball, x) & in_ball(claim.ball, y)
        x = x[both]
        y = y[both]
    W = np.array([[float(row.get(i, 0)) for i in range(network.output_size)] for row in claim.rows])
    if claim.is_on_values:
        with np.errstate(all="ignore"):
            values = network(x) @ W.T
        rounding = 1e-12 * (np.abs(network(x)).sum(axis=1, keepdims=True) + 1)
        return bool(((values >= float(claim.bound) - rounding) | ~np.isfinite(values)).all())
    scale = floats(claim.scale or [1] * n)
    with np.errstate(all="ignore"):
        outputs = [network(points) @ W.T for points in (x, y)]
        change, distance = (
            np.linalg.norm(outputs[0] - outputs[1], ORDERS[claim.norm_of_outputs], axis=1),
            np.linalg.norm((x - y) / scale, ORDERS[claim.norm], axis=1),
        )
        rounding = 1e-12 * (np.abs(outputs[0]).sum(axis=1) + np.abs(outputs[1]).sum(axis=1) + 1)
    sound = change <= float(claim.bound) * distance * (1 + 1e-9) + rounding
    return bool((sound | ~np.isfinite(change)).all())


def with_hash(certificate, network):
    """The certificate made out to the mutated network."""
    lines = certificate.split(b"\n")
    lines[1] = b"network " + hashlib.sha256(network).hexdigest().encode()
    return b"\n".join(lines)


def mutate_and_check(seed, count, tmp_path, name=""):
    """Of accepted files with this in their names."""
    rng = random.Random(seed)
    files = [
        (network.read_bytes(), certificate.read_bytes())
        for network, certificate in pairs("accept")
        if name in certificate.name
    ]
    outcomes = {0: 0, 1: 0, 2: 0, 3: 0, 4: 0}
    for _ in range(count):
        network, certificate = rng.choice(files)
        kind = rng.randrange(3)
        if kind == 0:
            network = mutated_bytes(network, rng)
            certificate = with_hash(certificate, network)
        else:
            certificate = (mutated_bytes if kind == 1 else mutated_tokens)(certificate, rng)
        code, claim = verdict(network, certificate)
        outcomes[code] += 1
        if claim is not None:
            (tmp_path / "network.safetensors").write_bytes(network)
            with contextlib.suppress(
                LipoptError
            ):  # lipopt asks for a little more, such as names of layers
                assert holds(Network.load(tmp_path / "network.safetensors"), claim)
    return outcomes


def test_hundreds_of_mutations(tmp_path):
    outcomes = mutate_and_check(0, 600, tmp_path)
    assert min(outcomes[code] for code in (0, 1, 2)) > 0


@pytest.mark.parametrize(
    "name",
    [
        "-ball-",
        "-units",
        "-signs",
        "pool-",
        "-through-",
        "-merge-",
        "-sparse-",
        "-margins-",
        "gate-",
    ],
)
def test_hundreds_of_mutations_of_one_kind(name, tmp_path):
    outcomes = mutate_and_check(0, 200, tmp_path, name)
    assert min(outcomes[code] for code in (0, 1, 2)) > 0


def test_hundreds_of_mutations_of_trees(tmp_path):
    outcomes = mutate_and_check(0, 300, tmp_path, "-tree-")
    assert min(outcomes[code] for code in (0, 1, 2)) > 0


def test_hundreds_of_mutations_of_values(tmp_path):
    outcomes = mutate_and_check(0, 400, tmp_path, "-values-")
    assert min(outcomes[code] for code in (0, 1, 2)) > 0


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [
        "",
        "-tree-",
        "-ball-",
        "-units",
        "-values-",
        "-margins-",
        "-signs",
        "pool-",
        "-through-",
        "-merge-",
        "-sparse-",
        "gate-",
    ],
)
@pytest.mark.parametrize("seed", range(1, 11))
def test_ten_thousand_mutations(seed, name, tmp_path):
    mutate_and_check(seed, 1000, tmp_path, name)
