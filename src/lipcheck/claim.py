"""The claim of a certificate (section 1 of spec/certificate.md), and how the file says it."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from .exact import Vector
from .inputs import Ball, Bounds
from .intervals import LineSlopes, Relaxations
from .lines import Lines
from .merging import read_merges
from .network import Network
from .squares import Product, read_products
from .verdicts import NETWORK_MISMATCH, REJECTED, require

NORMS = ["linf", "l2", "l1"]  # of one output, from the largest constant to the smallest
NO_NORM = "none"  # of a claim on values


@dataclass(frozen=True)
class Claim:
    """Section 1: the Lipschitz constant of W f over the domain is at most B; or, with the norm
    `none`, all rows of W f are at least B on it."""

    network: Network  # with neurons merged
    norm: str
    rows: list[dict[int, Fraction]]  # of W
    box: Bounds | None  # None is the whole space
    bound: Fraction  # B
    ball: Ball | None = None  # that the box is cut with
    through: str | None = None  # a norm in which the constant is not smaller
    scale: Vector | None = None  # the norm on the inputs is that of x / scale; None for 1
    output_norm: str | None = None  # on W f; None for the norm on the inputs
    products: Sequence[Product] = ()  # pairs of nodes of squares

    @property
    def proved_norm(self) -> str:
        """The norm in which the constant is shown to be at most B."""
        return self.through or self.norm

    @property
    def norm_of_outputs(self) -> str:
        """The norm on the outputs in which that is shown; of one output, any is the same."""
        return self.output_norm or self.proved_norm

    @property
    def is_on_values(self) -> bool:
        return self.norm == NO_NORM


def read_claim(lines: Lines, network: Network, version: str) -> tuple[Claim, Relaxations]:
    """Section 2, from the second line to the bound: the claim, and hints for its intervals."""
    lines.skip_comments()
    digest = lines.text("network")
    reason = f"the certificate is for {digest}, the file is {network.sha256}"
    require(digest == network.sha256, reason, NETWORK_MISMATCH)
    network = read_merges(lines, network)
    products = read_products(lines, network)
    norms = NORMS if version == "1" else [*NORMS, NO_NORM]
    norm = lines.word("norm", norms)
    through = None
    if norm != NO_NORM and lines.starts_with("through"):
        through = lines.word("through", NORMS[: NORMS.index(norm)])
    output_norm = None
    if lines.starts_with("output-norm"):
        output_norm = lines.word("output-norm", NORMS)
    scale = None
    if lines.starts_with("scale"):
        scale = lines.numbers("scale", network.input_size, least=1)
    rows = []
    for _ in range(lines.count("outputs")):
        rows.append(lines.sparse_row(network.output_size))
    lines.require(len(rows) > 0, "there are no outputs")
    fits = through is None or len(rows) == 1
    lines.require(fits, "another norm is used, and there is more than one output")
    box = None
    ball = None
    relaxations: Relaxations = {}
    domain = lines.word("domain", ["space", "box", "ball"])
    allowed = not products or (domain != "space" and norm != NO_NORM)
    lines.require(allowed, "products have slopes in a box or a ball alone", REJECTED)
    if domain == "ball":
        ball = read_ball(lines, network)
    if domain != "space":
        lower = lines.numbers("lower", network.input_size)
        upper = lines.numbers("upper", network.input_size)
        box = Bounds(lower, upper)
        relaxations = read_relaxations(lines, network)
    bound = lines.number("bound")
    claim = Claim(network, norm, rows, box, bound, ball, through, scale, output_norm, products)
    return claim, relaxations


def read_ball(lines: Lines, network: Network) -> Ball:
    """Section 2, `domain ball`: what comes before its box."""
    norm = lines.word("norm", ["l2", "l1"])
    center = lines.numbers("center", network.input_size)
    radii = lines.numbers("radii", network.input_size, least=0)
    return Ball(norm, center, radii)


def read_relaxations(lines: Lines, network: Network) -> Relaxations:
    """Section 2: none, or slopes of lines around all activations. Section 3 says what they do."""
    relaxations: dict[int, LineSlopes] = {}
    if lines.word("relaxations", ["none", "all"]) == "all":
        for i, node in network.activations.items():
            below = lines.numbers("below", node.size)
            above = lines.numbers("above", node.size)
            relaxations[i] = LineSlopes(below, above)
    return relaxations
