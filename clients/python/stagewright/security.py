"""How a client speaks to the planner: encrypted, or in the clear on this machine, with or without a token."""

import codecs
import dataclasses
import ipaddress
import os
import pathlib

import grpc

from .errors import RefusedError

_HELP = "give tls_ca (and tls_cert, tls_key), or insecure=True to speak to it in the clear"


@dataclasses.dataclass(frozen=True)
class Security:
    """Files in PEM, as the command line has them in --tls-ca, --tls-cert, --tls-key and --token-file. What is not given
    comes from the environment: STAGEWRIGHT_TLS_CA, STAGEWRIGHT_TLS_CERT, STAGEWRIGHT_TLS_KEY, STAGEWRIGHT_TOKEN_FILE,
    STAGEWRIGHT_INSECURE."""

    # Authorities: the planner must show a certificate of theirs.
    tls_ca: str | os.PathLike | None = None
    # The client's own certificate and its key, if the planner asks for one.
    tls_cert: str | os.PathLike | None = None
    tls_key: str | os.PathLike | None = None
    # The token that says who calls, in the first line.
    token_file: str | os.PathLike | None = None
    # Speak in the clear to a planner on another machine, too.
    insecure: bool | None = None

    def resolved(self) -> "Security":
        """With what the environment says where nothing was given."""
        given = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        found = {field.name: os.environ.get(f"STAGEWRIGHT_{field.name.upper()}") for field in dataclasses.fields(self)}
        found["insecure"] = (found["insecure"] or "").lower() in ("1", "true", "on", "yes")
        return Security(**{**{name: value or None for name, value in found.items()}, **given})

    def credentials(self, address: str) -> grpc.ChannelCredentials | None:
        """None: in the clear. RefusedError where that would leave this machine without having been asked for."""
        if self.tls_ca or self.tls_cert or self.tls_key:
            if (self.tls_cert is None) != (self.tls_key is None):
                raise RefusedError("tls_cert and tls_key are given both or neither")
            return grpc.ssl_channel_credentials(
                root_certificates=_read("tls_ca", self.tls_ca),
                private_key=_read("tls_key", self.tls_key),
                certificate_chain=_read("tls_cert", self.tls_cert),
            )
        if not is_loopback(address):
            if not self.insecure:
                raise RefusedError(f"the planner at {address} is on another machine: {_HELP}")
            if self.token_file is not None:
                raise RefusedError("token_file with insecure: everybody on the way could read the token; give tls_ca")
        return None

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What calls carry."""
        if self.token_file is None:
            return ()
        text = (_read("token_file", self.token_file) or b"").removeprefix(codecs.BOM_UTF8)
        words = text.split()
        if not words:
            raise RefusedError(f"token_file {self.token_file}: it is empty")
        token = words[0].decode("latin-1")
        if not (token.isascii() and token.isprintable()):
            raise RefusedError(f"token_file {self.token_file}: it has bytes that are not printable ASCII")
        return (("authorization", f"Bearer {token}"),)


def is_loopback(address: str) -> bool:
    """Whether what is sent to HOST:PORT, or to all of a list, stays on this machine. Names are not looked up."""
    if address.startswith("unix:"):
        return True
    if address.startswith(("ipv4:", "ipv6:")):  # gRPC's list of addresses.
        return all(map(is_loopback, address[5:].split(",")))
    host = address.rpartition(":")[0].strip("[]").rstrip(".")
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(name: str, path: str | os.PathLike | None) -> bytes | None:
    if path is None:
        return None
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise RefusedError(f"{name} {path}: {error.strerror}") from None
