"""A server that speaks as much of S3 as artifacts need, over HTTP on loopback. Whoever asks must have signed the request;
botocore says what the signature should have been."""

import dataclasses
import hashlib
import http.server
import re
import threading
import urllib.parse
from xml.sax.saxutils import escape

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

REGION = "eu-test-1"
BUCKET = "models"
AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/" + REGION + r"/s3/aws4_request, *"
    r"SignedHeaders=([^,]+), *Signature=([0-9a-f]{64})"
)


@dataclasses.dataclass
class S3Server:
    """Objects by key; bytes that were read, by who read them."""

    keys: dict[str, str] = dataclasses.field(default_factory=lambda: {"tester": "a/secret+of=tester"})
    token: str = ""
    objects: dict[str, bytes] = dataclasses.field(default_factory=dict)
    read: dict[str, int] = dataclasses.field(default_factory=dict)
    page: int = 1000  # So many objects and prefixes are listed at once.
    lists: int = 0  # So many lists were asked for.
    failures: int = 0  # So many requests are answered 503 first.
    silent_on: str = ""  # Who reads objects with this in their keys hears nothing.
    waiting: int = 0  # So many have asked for one.
    stopped: bool = False

    def __enter__(self) -> "S3Server":
        self.lock, self.end = threading.Lock(), threading.Event()
        handler = type("Handler", (_Handler,), {"store": self})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Nobody is answered any more, on no connection."""
        self.stopped = True
        self.end.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def environment(self, who: str = "tester") -> dict[str, str]:
        """What a program needs to be `who`."""
        host, port = self.server.server_address
        return {
            "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}",
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": who,
            "AWS_SECRET_ACCESS_KEY": self.keys.get(who, "wrong"),
            **({"AWS_SESSION_TOKEN": self.token} if self.token else {}),
        }


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: S3Server

    def do_GET(self):
        self._answer()

    do_HEAD = do_PUT = do_DELETE = do_GET  # noqa: N815

    def log_message(self, *unused):
        pass

    def _answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.store.silent_on and self.store.silent_on in self.path:
            self.store.waiting += 1
            self.store.end.wait()
        with self.store.lock:
            self.close_connection = self.store.stopped
            if self.store.stopped:
                return
            status, answer = self._do(body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    def _do(self, body: bytes) -> tuple[int, bytes]:
        if self.store.failures > 0:
            self.store.failures -= 1
            return self._error(503, "SlowDown")
        who, error = self._signer(body)
        if error:
            return self._error(403, error)
        url = urllib.parse.urlsplit(self.path)
        _, bucket, *keys = url.path.split("/", 2)
        if bucket != BUCKET:
            return self._error(404, "NoSuchBucket")
        if self.command == "GET" and not keys:
            return self._list(dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True, strict_parsing=True)))
        key = keys[0]
        if self.command == "PUT":
            self.store.objects[key] = body
        elif self.command == "DELETE":
            self.store.objects.pop(key, None)
            return 204, b""
        elif key not in self.store.objects:
            return self._error(404, "NoSuchKey")
        elif self.command == "GET":
            self.store.read[who] = self.store.read.get(who, 0) + len(self.store.objects[key])
            return 200, self.store.objects[key]
        return 200, b""

    def _list(self, asked: dict[str, str]) -> tuple[int, bytes]:
        """ListObjectsV2. A token is the last that was listed, in a form that a URL must not have as it is."""
        if asked.pop("list-type", "") != "2" or not asked.keys() <= {"prefix", "delimiter", "continuation-token"}:
            return self._error(400, "InvalidArgument")
        self.store.lists += 1
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        found = set()
        for key in self.store.objects:
            if key.startswith(prefix):
                rest = key.removeprefix(prefix)
                found.add(prefix + "".join(rest.partition(delimiter)[:2]) if delimiter else key)
        after = asked.get("continuation-token", "after & ").removeprefix("after & ")
        left = sorted(key for key in found if key > after)
        page = left[: self.store.page]
        text = f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
        for key in page:
            if delimiter and key.endswith(delimiter):
                text += f"<CommonPrefixes><Prefix>{escape(key)}</Prefix></CommonPrefixes>"
            else:
                text += f"<Contents><Key>{escape(key)}</Key><Size>{len(self.store.objects[key])}</Size></Contents>"
        if len(left) > len(page):
            text += f"<NextContinuationToken>{escape('after & ' + page[-1])}</NextContinuationToken>"
        namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
        return 200, f'<?xml version="1.0"?>\n<ListBucketResult xmlns="{namespace}">{text}</ListBucketResult>'.encode()

    def _error(self, status: int, code: str) -> tuple[int, bytes]:
        return status, f"<Error><Code>{code}</Code><Message>no luck\x1b[31m</Message></Error>".encode()

    def _signer(self, body: bytes) -> tuple[str, str]:
        """Who has signed, and what is wrong with it."""
        found = AUTHORIZATION.fullmatch(self.headers.get("Authorization", ""))
        if not found:
            return "", "AuthorizationHeaderMalformed"
        who, names, signature = found.groups()
        if who not in self.store.keys:
            return who, "InvalidAccessKeyId"
        signed = names.split(";")
        if not {"host", "x-amz-content-sha256", "x-amz-date"} <= set(signed):
            return who, "AccessDenied"
        if self.headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
            return who, "XAmzContentSHA256Mismatch"
        if self.store.token and (
            "x-amz-security-token" not in signed or self.headers["x-amz-security-token"] != self.store.token
        ):
            return who, "InvalidToken"
        request = AWSRequest(self.command, f"http://{self.headers['host']}{self.path}", data=body)
        for name in signed:
            request.headers[name] = self.headers[name]
        request.context["timestamp"] = self.headers["x-amz-date"]
        auth = S3SigV4Auth(Credentials(who, self.store.keys[who]), "s3", REGION)
        right = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
        return who, "" if signature == right else "SignatureDoesNotMatch"
