"""A certificate, from its first line to its last: section 2 of spec/certificate.md."""

from .cells import check_slopes, check_values
from .claim import Claim, read_claim
from .intervals import enclose
from .lines import Lines
from .network import Network
from .parts import check_parts, whole_domain


def check(network: Network, data: bytes) -> Claim:
    """The claim that the certificate proves; the check ends in a Failure if it proves none."""
    lines = Lines(data)
    version = lines.word("lipopt-certificate", ["1", "2"])
    claim, relaxations = read_claim(lines, network, version)
    enclosure = None
    if claim.box is not None:
        enclosure = enclose(claim.network, claim.box, relaxations, claim.ball)
    if version == "1":
        check_parts(lines, claim, whole_domain(claim, enclosure))
    elif claim.is_on_values:
        check_values(lines, claim, enclosure)
    else:
        check_slopes(lines, claim, enclosure)
    check_end(lines)
    return claim


def check_end(lines: Lines) -> None:
    """Section 2, last line: the number of lines before it, and nothing after it."""
    before = lines.taken
    said = lines.integer("end")
    is_end = said == before and lines.left == 1
    lines.require(is_end, f"the file ends with 'end {before}'")
