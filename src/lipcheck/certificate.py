"""A certificate, from its first line to its last: section 2 of spec/certificate.md."""

from .cells import check_slopes, check_values
from .claim import Claim, read_claim
from .intervals import slope_ranges
from .lines import Lines
from .network import Network
from .parts import check_parts, whole_domain


def check(network: Network, data: bytes) -> Claim:
    """The claim that the certificate proves; the check ends in a Failure if it proves none."""
    lines = Lines(data)
    version = lines.word("lipopt-certificate", ["1", "2"])
    claim, relaxations = read_claim(lines, network, version)
    if version == "1":
        ranges = slope_ranges(claim.network, claim.box, relaxations, claim.ball)
        check_parts(lines, claim, whole_domain(claim, ranges))
    elif claim.is_on_values:
        check_values(lines, claim, relaxations)
    else:
        check_slopes(lines, claim, relaxations)
    check_end(lines)
    return claim


def check_end(lines: Lines) -> None:
    """Section 2, last line: the number of lines before it, and nothing after it."""
    before = lines.taken
    said = lines.integer("end")
    is_end = said == before and lines.left == 1
    lines.require(is_end, f"the file ends with 'end {before}'")
