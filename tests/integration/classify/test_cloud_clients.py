"""botocore, google-api-core and grpcio, failing in earnest against local servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import closing
from typing import TYPE_CHECKING, Any

import botocore.config
import botocore.session
import google.api_core.exceptions as google_errors
import grpc
import grpc.aio
import pytest
import requests
import trustme
from google.api_core import retry as google_retry
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]

from holdfast.policy.classify import classify

if TYPE_CHECKING:
    from tests.integration.classify.conftest import Ask, AskAsync, FailingServer


# ---------------------------------------------------------------- botocore
def list_tables(url: str, *, verify: bool = True, timeout_s: float = 10.0, **options: Any) -> object:
    config = botocore.config.Config(
        retries={"total_max_attempts": 1}, connect_timeout=timeout_s, read_timeout=timeout_s, proxies={}
    )
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"} | options
    client = botocore.session.Session().create_client(
        "dynamodb", region_name="eu-west-1", endpoint_url=url, config=config, verify=verify, **keys
    )
    with closing(client):
        return client.list_tables()


def aws_error(code: str) -> bytes:
    return json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "no"}).encode()


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "ThrottlingException", "rate_limited"),
        (400, "ProvisionedThroughputExceededException", "rate_limited"),
        (400, "RequestLimitExceeded", "rate_limited"),
        (503, "SlowDown", "rate_limited"),
        (400, "ValidationException", "validation"),
        (400, "ResourceNotFoundException", "permanent"),
        (400, "ConditionalCheckFailedException", "permanent"),
        (400, "UnrecognizedClientException", "authentication"),
        (400, "ExpiredTokenException", "authentication"),
        (400, "AccessDeniedException", "authentication"),
        (400, "TransactionConflictException", "transient"),
        (500, "InternalServerError", "transient"),
        (403, "SomethingNew", "authentication"),
        (404, "SomethingNew", "permanent"),
        (413, "SomethingNew", "validation"),
        (429, "SomethingNew", "rate_limited"),
        (502, "SomethingNew", "transient"),
    ],
)
def test_an_aws_code_wins_over_the_status(
    status: int, code: str, expected: str, server: FailingServer, failure_of: Ask
) -> None:
    assert failure_of(lambda: list_tables(server.reply(status, {}, aws_error(code)))).type == expected


def test_botocore_tells_when_to_come_back(server: FailingServer, failure_of: Ask) -> None:
    url = server.reply(503, {"Retry-After": "11"}, aws_error("ServiceUnavailable"))
    failure = failure_of(lambda: list_tables(url))
    assert (failure.type, failure.retry_after) == ("transient", 11.0)


@pytest.mark.parametrize(("path", "timeout_s"), [("/reset", 10.0), ("/hang", 0.1)])
def test_botocore_network_faults(path: str, timeout_s: float, server: FailingServer, failure_of: Ask) -> None:
    assert failure_of(lambda: list_tables(server.url + path, timeout_s=timeout_s)).type == "network"


def test_a_truncated_object_is_a_network_failure(server: FailingServer, failure_of: Ask) -> None:
    """An object only: of its other answers botocore does not check the length, so nobody can tell."""
    client = botocore.session.Session().create_client(
        "s3", region_name="eu-west-1", endpoint_url=server.url, aws_access_key_id="k", aws_secret_access_key="s"
    )
    with closing(client):
        body = client.get_object(Bucket="truncated", Key="object")["Body"]
        assert failure_of(body.read).type == "network"


def test_botocore_refused_port_and_unknown_host(refused_url: str, failure_of: Ask) -> None:
    assert failure_of(lambda: list_tables(refused_url)).type == "network"
    assert failure_of(lambda: list_tables("http://nothing.invalid")).type == "network"


def test_botocore_bad_certificate_needs_a_person(tls_server: FailingServer, failure_of: Ask) -> None:
    assert failure_of(lambda: list_tables(tls_server.url)).type == "permanent"


def test_botocore_without_credentials_is_an_authentication_failure(
    server: FailingServer, failure_of: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    nobody: dict[str, Any] = {"aws_access_key_id": None, "aws_secret_access_key": None}
    assert failure_of(lambda: list_tables(server.url, **nobody)).type == "authentication"


def test_botocore_wrong_parameters_are_invalid(server: FailingServer, failure_of: Ask) -> None:
    client = botocore.session.Session().create_client(
        "dynamodb", region_name="eu-west-1", endpoint_url=server.url, aws_access_key_id="k", aws_secret_access_key="s"
    )
    with closing(client):
        assert failure_of(lambda: client.get_item(TableName="t")).type == "validation"


# ---------------------------------------------------------------- google-api-core over HTTP
def call_google(url: str) -> object:
    with requests.get(url, timeout=10) as response:
        raise google_errors.from_http_response(response)  # type: ignore[no-untyped-call]


def google_error(status: int, **parts: object) -> bytes:
    return json.dumps({"error": {"code": status, "message": "no", **parts}}).encode()


ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


def test_every_status_of_google_has_its_meaning(
    server: FailingServer, failure_of: Ask, meanings: dict[int, str]
) -> None:
    def fail(status: int) -> Callable[[], object]:
        return lambda: call_google(f"{server.url}/status/{status}")

    assert {status: failure_of(fail(status)).type for status in meanings} == meanings


@pytest.mark.parametrize(
    "parts",
    [
        {"errors": [{"domain": "usageLimits", "reason": "rateLimitExceeded"}]},
        {"errors": [{"reason": "userRateLimitExceeded"}]},
        {"errors": [{"reason": "global"}, {"reason": "quotaExceeded"}]},
        {"errors": [{"reason": "dailyLimitExceeded"}]},
        {"details": [{"@type": ERROR_INFO, "reason": "RATE_LIMIT_EXCEEDED", "domain": "googleapis.com"}]},
    ],
)
def test_a_used_up_google_quota_is_a_rate_limit_though_its_status_is_403(
    parts: dict[str, object], server: FailingServer, failure_of: Ask
) -> None:
    url = server.reply(403, {}, google_error(403, **parts))
    assert failure_of(lambda: call_google(url)).type == "rate_limited"


def test_other_google_reasons_leave_403_an_authentication_failure(server: FailingServer, failure_of: Ask) -> None:
    url = server.reply(403, {}, google_error(403, errors=[{"reason": "accessNotConfigured"}]))
    assert failure_of(lambda: call_google(url)).type == "authentication"


def test_google_retry_info_says_when_to_come_back(server: FailingServer, failure_of: Ask) -> None:
    url = server.reply(429, {}, google_error(429, details=[{"@type": RETRY_INFO, "retryDelay": "12.5s"}]))
    failure = failure_of(lambda: call_google(url))
    assert (failure.type, failure.retry_after) == ("rate_limited", 12.5)


def test_a_google_retry_that_gave_up_is_known_by_what_it_retried(server: FailingServer, failure_of: Ask) -> None:
    retry = google_retry.Retry(timeout=0.0)
    url = server.reply(429)
    assert failure_of(retry(lambda: call_google(url))).type == "rate_limited"


# ---------------------------------------------------------------- grpcio
MEANINGS = {
    "CANCELLED": "transient",
    "UNKNOWN": "system",
    "INVALID_ARGUMENT": "validation",
    "DEADLINE_EXCEEDED": "network",
    "NOT_FOUND": "permanent",
    "ALREADY_EXISTS": "permanent",
    "PERMISSION_DENIED": "authentication",
    "RESOURCE_EXHAUSTED": "rate_limited",
    "FAILED_PRECONDITION": "permanent",
    "ABORTED": "transient",
    "OUT_OF_RANGE": "validation",
    "UNIMPLEMENTED": "permanent",
    "INTERNAL": "transient",
    "UNAVAILABLE": "transient",
    "DATA_LOSS": "permanent",
    "UNAUTHENTICATED": "authentication",
}
RETRY_IN_7_S = status_pb2.Status(code=code_pb2.UNAVAILABLE, message="no")
RETRY_IN_7_S.details.add().Pack(error_details_pb2.ErrorInfo(reason="BUSY", domain="test"))
RETRY_IN_7_S.details.add().Pack(error_details_pb2.RetryInfo(retry_delay={"seconds": 7, "nanos": 250_000_000}))
METADATA = {
    "pushback": (("grpc-retry-pushback-ms", "1500"),),
    "retry-info": (("grpc-status-details-bin", RETRY_IN_7_S.SerializeToString()),),
    "": (),
}


def _abort(request: bytes, context: grpc.ServicerContext) -> bytes:
    """Fail with the status that the request names, and the metadata after the colon; `hang` waits for the client."""
    name, _, metadata = request.decode().partition(":")
    if name == "hang":
        gone = futures.Future[None]()
        context.add_callback(lambda: gone.set_result(None))
        gone.result()
        return b""
    context.set_trailing_metadata(METADATA[metadata])
    context.abort(grpc.StatusCode[name], "no")
    raise AssertionError("abort returned")


class _Handlers(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return grpc.unary_unary_rpc_method_handler(_abort) if handler_call_details.method == "/test/abort" else None


@pytest.fixture(scope="module")
def grpc_server(authority: trustme.CA) -> Iterator[tuple[str, str]]:
    """Two addresses: in the clear, and with a certificate that nobody trusts."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((_Handlers(),))
    clear = server.add_insecure_port("127.0.0.1:0")
    issued = authority.issue_cert("127.0.0.1", "localhost")
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    tls = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)]))
    server.start()
    yield f"127.0.0.1:{clear}", f"127.0.0.1:{tls}"
    server.stop(None).wait()


def call_grpc(address: str, request: str, *, method: str = "/test/abort", timeout_s: float = 10.0) -> object:
    with grpc.insecure_channel(address) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
        return call(request.encode(), timeout=timeout_s)


@pytest.mark.parametrize("code", MEANINGS)
def test_every_grpc_status_has_its_meaning(code: str, grpc_server: tuple[str, str], failure_of: Ask) -> None:
    assert failure_of(lambda: call_grpc(grpc_server[0], code)).type == MEANINGS[code]


@pytest.mark.parametrize("code", MEANINGS)
async def test_every_status_of_the_asyncio_client_has_its_meaning(
    code: str, grpc_server: tuple[str, str], afailure_of: AskAsync
) -> None:
    async def call() -> object:
        async with grpc.aio.insecure_channel(grpc_server[0]) as channel:
            abort: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/test/abort")
            return await abort(code.encode(), timeout=10.0)

    assert (await afailure_of(call)).type == MEANINGS[code]


@pytest.mark.parametrize("code", MEANINGS)
def test_every_grpc_status_keeps_its_meaning_in_google_api_core(
    code: str, grpc_server: tuple[str, str], failure_of: Ask
) -> None:
    def call() -> object:
        try:
            return call_grpc(grpc_server[0], code)
        except grpc.RpcError as error:
            raise google_errors.from_grpc_error(error) from error  # type: ignore[no-untyped-call]

    assert failure_of(call).type == MEANINGS[code]


@pytest.mark.parametrize(("metadata", "expected"), [("pushback", 1.5), ("retry-info", 7.25), ("", None)])
def test_grpc_metadata_says_when_to_come_back(
    metadata: str, expected: float | None, grpc_server: tuple[str, str], failure_of: Ask
) -> None:
    assert failure_of(lambda: call_grpc(grpc_server[0], f"UNAVAILABLE:{metadata}")).retry_after == expected


def test_google_api_core_hands_on_the_retry_info_of_a_grpc_call(grpc_server: tuple[str, str]) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call_grpc(grpc_server[0], "UNAVAILABLE:retry-info")
    failure = classify(google_errors.from_grpc_error(caught.value))  # type: ignore[no-untyped-call]
    assert (failure.type, failure.retry_after) == ("transient", 7.25)


def test_a_grpc_deadline_is_a_network_failure(grpc_server: tuple[str, str], failure_of: Ask) -> None:
    assert failure_of(lambda: call_grpc(grpc_server[0], "hang", timeout_s=0.1)).type == "network"


def test_an_unknown_grpc_method_is_permanent(grpc_server: tuple[str, str], failure_of: Ask) -> None:
    assert failure_of(lambda: call_grpc(grpc_server[0], "", method="/test/nothing")).type == "permanent"


def test_grpc_that_reaches_nobody_is_a_network_failure(refused_url: str, failure_of: Ask) -> None:
    assert failure_of(lambda: call_grpc(refused_url.removeprefix("http://"), "")).type == "network"
    assert failure_of(lambda: call_grpc("dns:///nothing.invalid:50051", "")).type == "network"


def test_grpc_with_a_bad_certificate_needs_a_person(grpc_server: tuple[str, str], failure_of: Ask) -> None:
    def call() -> object:
        with grpc.secure_channel(grpc_server[1], grpc.ssl_channel_credentials()) as channel:
            abort: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/test/abort")
            return abort(b"OK", timeout=10.0)

    assert failure_of(call).type == "permanent"
