"""An identity provider, as far as a planner sees one: a key, its public half in a JSON Web Key Set, signed tokens."""

import base64
import json
import pathlib
import re
import subprocess
import time

ISSUER = "https://id.example.org"
AUDIENCE = "stagewright"


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class IdentityProvider:
    """Signs by RS256, with OpenSSL's command."""

    def __init__(self, folder: pathlib.Path, kid: str = "k1"):
        self.kid = kid
        self.key = folder / f"{kid}-key.pem"
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", self.key)

    def jwk(self) -> dict:
        modulus = re.search(rb"Modulus=(\w+)", openssl("rsa", "-in", self.key, "-noout", "-modulus")).group(1).decode()
        return {"kty": "RSA", "use": "sig", "kid": self.kid, "n": base64url(bytes.fromhex(modulus)), "e": "AQAB"}

    def token(self, subject: str, *roles: str, algorithm: str = "RS256", **claims: object) -> str:
        """Good for an hour unless the claims say something else."""
        header = {"alg": algorithm, "typ": "JWT", "kid": self.kid}
        body = {"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "exp": int(time.time()) + 3600, "roles": roles, **claims}
        text = ".".join(base64url(json.dumps(part).encode()) for part in (header, body))
        signature = openssl("dgst", "-sha256", "-sign", self.key, data=text.encode())
        return f"{text}.{base64url(signature)}"


def key_set(*providers: IdentityProvider) -> str:
    return json.dumps({"keys": [provider.jwk() for provider in providers]})


def jwt_flags(keys: pathlib.Path) -> list[object]:
    """The planner's."""
    return ["--jwt-keys", keys, "--jwt-issuer", ISSUER, "--jwt-audience", AUDIENCE]


def openssl(*arguments: object, data: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *map(str, arguments)], input=data, capture_output=True, check=True).stdout
