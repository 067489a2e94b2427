"""What exception classes mean: Python's own, and the common clients' by name, so that none is imported.

Tables only. To change a meaning, change its line here; the nearest class in an error's MRO decides.
"""

from __future__ import annotations

from holdfast.errors import IllegalChange, RateLimitExceeded, Refused
from holdfast.policy.known_codes import (
    AUTHENTICATION,
    CERTIFICATE,
    CRITICAL,
    NETWORK,
    PERMANENT,
    RATE_LIMITED,
    SYSTEM,
    TRANSIENT,
    VALIDATION,
    Finding,
)
from holdfast.types import FailureType

BY_CLASS: dict[type[BaseException], Finding] = {
    Refused: Finding(TRANSIENT),  # an open breaker, a full bulkhead
    RateLimitExceeded: Finding(RATE_LIMITED),
    IllegalChange: Finding(PERMANENT),
    ConnectionError: Finding(NETWORK),
    TimeoutError: Finding(NETWORK),
    ValueError: Finding(VALIDATION),
    TypeError: Finding(VALIDATION),
    KeyError: Finding(VALIDATION),
    ArithmeticError: Finding(PERMANENT),
    AssertionError: Finding(PERMANENT),
    AttributeError: Finding(PERMANENT),
    BufferError: Finding(PERMANENT),
    ImportError: Finding(PERMANENT),
    LookupError: Finding(PERMANENT),
    NameError: Finding(PERMANENT),
    NotImplementedError: Finding(PERMANENT),
    RecursionError: Finding(PERMANENT),
    ReferenceError: Finding(PERMANENT),
    StopIteration: Finding(PERMANENT),
    StopAsyncIteration: Finding(PERMANENT),
    SyntaxError: Finding(PERMANENT),
    Warning: Finding(PERMANENT),  # somebody asked for warnings to be errors
    MemoryError: CRITICAL,
    # A missing file is like 404 and a forbidden one like 403: the same call gives the same answer.
    FileNotFoundError: Finding(PERMANENT),
    FileExistsError: Finding(PERMANENT),
    IsADirectoryError: Finding(PERMANENT),
    NotADirectoryError: Finding(PERMANENT),
    ProcessLookupError: Finding(PERMANENT),
    ChildProcessError: Finding(PERMANENT),
    PermissionError: Finding(AUTHENTICATION),
    BlockingIOError: Finding(TRANSIENT),
    InterruptedError: Finding(TRANSIENT),
}

_BY_MODULE: dict[str, dict[FailureType, str]] = {
    "concurrent.futures._base": {PERMANENT: "CancelledError InvalidStateError"},  # somebody cancelled it on purpose
    "socket": {NETWORK: "gaierror herror"},
    "ssl": {NETWORK: "SSLError"},
    "asyncio.exceptions": {NETWORK: "IncompleteReadError"},
    "struct": {VALIDATION: "error"},
    "xml.etree.ElementTree": {VALIDATION: "ParseError"},
    "http.client": {
        NETWORK: "IncompleteRead BadStatusLine LineTooLong",
        VALIDATION: "InvalidURL",
        PERMANENT: "ImproperConnectionState NotConnected",
    },
    "httpx": {
        NETWORK: "TransportError DecodingError",
        VALIDATION: "InvalidURL UnsupportedProtocol",
        PERMANENT: "LocalProtocolError TooManyRedirects StreamError CookieConflict",
    },
    "httpcore": {
        NETWORK: "NetworkError TimeoutException RemoteProtocolError ProxyError ConnectionNotAvailable",
        VALIDATION: "UnsupportedProtocol",
        PERMANENT: "LocalProtocolError",
    },
    "requests.exceptions": {
        NETWORK: "ConnectionError Timeout ChunkedEncodingError ContentDecodingError",
        TRANSIENT: "RetryError",  # the adapter's own retries of bad statuses are used up
        VALIDATION: "InvalidURL MissingSchema InvalidSchema InvalidHeader URLRequired InvalidJSONError",
        PERMANENT: "TooManyRedirects StreamConsumedError UnrewindableBodyError",
    },
    "urllib3.exceptions": {
        NETWORK: "TimeoutError ProtocolError NewConnectionError SSLError ProxyError DecodeError IncompleteRead",
        TRANSIENT: "ResponseError EmptyPoolError",
        VALIDATION: "LocationValueError",
    },
    "aiohttp.client_exceptions": {
        NETWORK: "ClientConnectionError ClientPayloadError",
        VALIDATION: "InvalidURL NonHttpUrlClientError",
        PERMANENT: "TooManyRedirects RedirectClientError ServerFingerprintMismatch",
        FailureType.STRUCTURAL: "ContentTypeError",  # a page came where JSON was agreed
    },
    "botocore.exceptions": {
        NETWORK: "HTTPClientError ConnectionError IncompleteReadError",
        TRANSIENT: "FlexibleChecksumError",  # the body arrived damaged
        VALIDATION: "ParamValidationError ValidationError MissingParametersError",
        AUTHENTICATION: (
            "NoCredentialsError PartialCredentialsError CredentialRetrievalError TokenRetrievalError NoAuthTokenError"
            " SSOError LoginError"
        ),
        PERMANENT: (
            "DataNotFoundError BaseEndpointResolverError EndpointProviderError InvalidConfigError ProfileNotFound"
            " UnknownClientMethodError UnknownRegionError InvalidEndpointConfigurationError"
        ),
    },
    "google.auth.exceptions": {NETWORK: "TransportError", AUTHENTICATION: "RefreshError DefaultCredentialsError"},
    "grpc": {NETWORK: "FutureTimeoutError"},
    "redis.exceptions": {
        NETWORK: "ConnectionError TimeoutError InvalidResponse",
        TRANSIENT: (
            "BusyLoadingError ClusterError AskError TryAgainError ReadOnlyError WatchError MaxConnectionsError"
            " SlotNotCoveredError"
        ),
        SYSTEM: "OutOfMemoryError",
        VALIDATION: "DataError",
        AUTHENTICATION: (
            "AuthenticationError AuthenticationWrongNumberOfArgsError AuthorizationError NoPermissionError"
            " ExternalAuthProviderError"
        ),
        PERMANENT: "ResponseError LockError PubSubError RedisClusterException",
    },
    "psycopg": {
        SYSTEM: "OperationalError InterfaceError InternalError",
        VALIDATION: "IntegrityError DataError",
        PERMANENT: "ProgrammingError NotSupportedError",
    },
    "sqlalchemy.exc": {
        TRANSIENT: "TimeoutError",  # no free connection in the pool
        SYSTEM: "DisconnectionError",
        PERMANENT: "ArgumentError CompileError InvalidRequestError NoReferenceError UnboundExecutionError",
    },
    "sqlalchemy.orm.exc": {TRANSIENT: "StaleDataError"},
    "sqlite3": {
        VALIDATION: "IntegrityError DataError",
        PERMANENT: "ProgrammingError InterfaceError NotSupportedError",
    },
    "apsw": {
        VALIDATION: "BindingsError",
        PERMANENT: (
            "ConnectionClosedError CursorClosedError ThreadingViolationError ForkingViolationError"
            " IncompleteExecutionError ExecutionCompleteError InvalidContextError"
        ),
    },
    "msgspec": {VALIDATION: "MsgspecError"},
}

BY_NAME = {
    f"{module}.{name}": Finding(failure_type)
    for module, meanings in _BY_MODULE.items()
    for failure_type, names in meanings.items()
    for name in names.split()
} | {
    "ssl.SSLCertVerificationError": CERTIFICATE,
    "aiohttp.client_exceptions.ClientConnectorCertificateError": CERTIFICATE,
}
"""Classes by module and qualified name; a pydantic error is a ValueError and needs no line."""

LAST_RESORT = {
    "urllib.error.HTTPError": Finding(PERMANENT),  # of a redirect that led nowhere, as httpx's below
    "urllib.error.URLError": Finding(NETWORK),
    "http.client.HTTPException": Finding(NETWORK),
    "urllib3.exceptions.MaxRetryError": Finding(NETWORK),
    "google.api_core.exceptions.RetryError": Finding(TRANSIENT),
    "httpx.HTTPStatusError": Finding(PERMANENT),
    "sqlalchemy.exc.IntegrityError": Finding(VALIDATION),
    "sqlalchemy.exc.DataError": Finding(VALIDATION),
    "sqlalchemy.exc.ProgrammingError": Finding(PERMANENT),
    "sqlalchemy.exc.NotSupportedError": Finding(PERMANENT),
    "sqlalchemy.exc.StatementError": Finding(SYSTEM),
}
"""Wrappers: what they hold says more than they do, so they count only when nothing in the chain is recognised."""
