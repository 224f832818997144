"""The checker's fixture files, and its verdict on bytes."""

import tempfile
from pathlib import Path

from lipcheck.certificate import check
from lipcheck.claim import Claim
from lipcheck.network import read_network
from lipcheck.verdicts import EXIT_CODES, Failure
from lipopt.model.network import Network

FOLDER = Path(__file__).parents[1] / "lipcheck"


def network_of(certificate: Path) -> Path:
    return FOLDER / "networks" / f"{certificate.name.split('-')[0]}.safetensors"


def pairs(folder: str) -> list[tuple[Path, Path]]:
    """Networks and certificates of a fixture folder."""
    return [
        (network_of(path), path)
        for path in sorted((FOLDER / folder).iterdir())
        if path.suffix != ".safetensors"
    ]


def file_of(network: Network) -> bytes:
    """The network as its own file has it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.safetensors"
        network.save(path)
        return path.read_bytes()


def verdict(network: bytes, certificate: bytes) -> tuple[int, Claim | None]:
    """The exit code, and the claim if it is verified. Any other exception is an error of the checker, and of the test."""
    try:
        return 0, check(read_network(network), certificate)
    except Failure as failure:
        return EXIT_CODES[failure.verdict], None
