"""What the codes inside errors mean: HTTP statuses, gRPC, SQLSTATE, SQLite, errno, AWS, Google, Redis.

Tables only. To change a meaning, change its line here; evidence.py finds the codes.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from holdfast.types import FailureType, Severity

TRANSIENT = FailureType.TRANSIENT
RATE_LIMITED = FailureType.RATE_LIMITED
NETWORK = FailureType.NETWORK
SYSTEM = FailureType.SYSTEM
PERMANENT = FailureType.PERMANENT
VALIDATION = FailureType.VALIDATION
AUTHENTICATION = FailureType.AUTHENTICATION


class Finding(NamedTuple):
    """What is known about one error; without a severity it is the type's own."""

    type: FailureType
    severity: Severity | None = None
    retry_after: float | None = None


CRITICAL = Finding(SYSTEM, Severity.CRITICAL)
"""The machine itself is failing: its disk or its memory."""

CERTIFICATE = Finding(PERMANENT)
"""A certificate cannot be trusted. Somebody has to mend it, so this wins over NETWORK errors around it."""

_STATUSES = {
    400: VALIDATION,
    401: AUTHENTICATION,
    403: AUTHENTICATION,
    407: AUTHENTICATION,
    408: TRANSIENT,
    409: TRANSIENT,  # Conflict: somebody else was quicker, and the next try sees the new state
    413: VALIDATION,  # too large, too long, of the wrong kind: the request itself must change
    414: VALIDATION,
    415: VALIDATION,
    422: VALIDATION,
    423: TRANSIENT,  # Locked: locks end
    425: TRANSIENT,  # Too Early: the server asks for the same request again, later
    429: RATE_LIMITED,
}


def meaning_of_status(status: int) -> Finding:
    """The meaning of an HTTP status from 400 to 599: 5xx heal, and a 4xx not listed would be refused again."""
    return Finding(_STATUSES.get(status) or (TRANSIENT if status >= 500 else PERMANENT))


GRPC = {
    "CANCELLED": Finding(TRANSIENT),
    "UNKNOWN": Finding(SYSTEM),
    "INVALID_ARGUMENT": Finding(VALIDATION),
    "DEADLINE_EXCEEDED": Finding(NETWORK),  # our own time-out, as TimeoutError is
    "NOT_FOUND": Finding(PERMANENT),
    "ALREADY_EXISTS": Finding(PERMANENT),
    "PERMISSION_DENIED": Finding(AUTHENTICATION),
    "RESOURCE_EXHAUSTED": Finding(RATE_LIMITED),
    "FAILED_PRECONDITION": Finding(PERMANENT),
    "ABORTED": Finding(TRANSIENT),
    "OUT_OF_RANGE": Finding(VALIDATION),
    "UNIMPLEMENTED": Finding(PERMANENT),
    "INTERNAL": Finding(TRANSIENT),
    "UNAVAILABLE": Finding(TRANSIENT),
    "DATA_LOSS": Finding(PERMANENT, Severity.CRITICAL),
    "UNAUTHENTICATED": Finding(AUTHENTICATION),
}

# SQLSTATE: the whole code first, then its class (the first two characters). Classes 02, 03 and others that say nothing
# about healing are left out on purpose.
SQLSTATES = {
    "08": Finding(SYSTEM),  # connection exception: lost, refused, broken
    "0A": Finding(PERMANENT),  # feature not supported
    "21": Finding(PERMANENT),
    "22": Finding(VALIDATION),  # data exception
    "23": Finding(VALIDATION),  # integrity constraint violation
    "25": Finding(PERMANENT),  # invalid transaction state
    "25006": Finding(TRANSIENT),  # read-only: a primary became a standby, and a new connection finds the new primary
    "25P03": Finding(SYSTEM),  # the server ended an idle session: the connection is lost
    "26": Finding(PERMANENT),
    "28": Finding(AUTHENTICATION),
    "2B": Finding(PERMANENT),
    "34": Finding(PERMANENT),
    "3D": Finding(PERMANENT),  # no such database
    "3F": Finding(PERMANENT),  # no such schema
    "40": Finding(TRANSIENT),  # serialization failure, deadlock
    "42": Finding(PERMANENT),  # syntax, unknown table or column
    "42501": Finding(AUTHENTICATION),  # insufficient privilege
    "44": Finding(VALIDATION),
    "53": Finding(SYSTEM),  # insufficient resources
    "53100": CRITICAL,  # disk full
    "53200": CRITICAL,  # out of memory
    "54": Finding(PERMANENT),  # program limit exceeded
    "55": Finding(PERMANENT),
    "55006": Finding(TRANSIENT),  # object in use
    "55P03": Finding(TRANSIENT),  # lock not available
    "57": Finding(SYSTEM),  # shut down by an operator, starting up
    "57014": Finding(TRANSIENT),  # statement time-out
    "58": Finding(SYSTEM),
    "58030": CRITICAL,  # I/O error
    "P0": Finding(PERMANENT),  # raised by a procedure
    "XX": Finding(SYSTEM),
    "XX001": CRITICAL,  # data corrupted
    "XX002": CRITICAL,  # index corrupted
}

# SQLite's primary result codes (the low byte of an extended one).
SQLITE = {
    1: Finding(PERMANENT),  # ERROR: bad SQL, no such table
    3: Finding(AUTHENTICATION),  # PERM
    4: Finding(TRANSIENT),  # ABORT
    5: Finding(TRANSIENT),  # BUSY
    6: Finding(TRANSIENT),  # LOCKED
    7: CRITICAL,  # NOMEM
    8: Finding(PERMANENT),  # READONLY
    9: Finding(TRANSIENT),  # INTERRUPT
    10: CRITICAL,  # IOERR
    11: CRITICAL,  # CORRUPT: the machine's fault and not the call's, so breakers count it
    13: CRITICAL,  # FULL
    14: Finding(SYSTEM),  # CANTOPEN
    15: Finding(TRANSIENT),  # PROTOCOL: lost a race for the WAL lock
    17: Finding(TRANSIENT),  # SCHEMA: changed under a statement
    18: Finding(VALIDATION),  # TOOBIG
    19: Finding(VALIDATION),  # CONSTRAINT
    20: Finding(VALIDATION),  # MISMATCH
    21: Finding(PERMANENT),  # MISUSE
    23: Finding(AUTHENTICATION),  # AUTH
    25: Finding(VALIDATION),  # RANGE
    26: Finding(PERMANENT, Severity.CRITICAL),  # NOTADB: the file is something else, or was overwritten
}

_ERRNO_NAMES = {
    CRITICAL: "ENOSPC EDQUOT ENOMEM EIO EROFS",  # a file system turns read-only when its disk fails
    Finding(SYSTEM): "EMFILE ENFILE ENOBUFS ENODEV ENXIO ESTALE",
    Finding(NETWORK): (
        "ECONNREFUSED ECONNRESET ECONNABORTED EPIPE ESHUTDOWN ETIMEDOUT ENETUNREACH EHOSTUNREACH ENETDOWN EHOSTDOWN"
        " ENETRESET ENOTCONN EADDRNOTAVAIL EADDRINUSE"
    ),
    Finding(TRANSIENT): "EAGAIN EINTR EBUSY EDEADLK ENOLCK ETXTBSY EINPROGRESS EALREADY",
    Finding(AUTHENTICATION): "EACCES EPERM",
    Finding(VALIDATION): "EINVAL ENAMETOOLONG EFBIG EILSEQ",
    Finding(
        PERMANENT
    ): "ENOENT EEXIST ENOTDIR EISDIR ENOTEMPTY EXDEV ELOOP EBADF ESRCH ECHILD EAFNOSUPPORT ENOTSUP ENOSYS",
}
ERRNOS = {
    getattr(errno, name): finding
    for finding, names in _ERRNO_NAMES.items()
    for name in names.split()
    if hasattr(errno, name)  # not every platform has every one
}

_AWS_NAMES = {
    Finding(RATE_LIMITED): (
        "Throttling ThrottlingException ThrottledException RequestThrottled RequestThrottledException"
        " TooManyRequestsException ProvisionedThroughputExceededException RequestLimitExceeded BandwidthLimitExceeded"
        " LimitExceededException SlowDown PriorRequestNotComplete EC2ThrottledException"
    ),
    Finding(TRANSIENT): (
        "RequestTimeout RequestTimeoutException InternalError InternalFailure InternalServerError ServiceUnavailable"
        " ServiceUnavailableException ServiceFailure Unavailable OperationAborted TransactionConflictException"
        " TransactionInProgressException ReplicatedWriteConflictException IDPCommunicationError"
    ),
    Finding(AUTHENTICATION): (
        "AccessDenied AccessDeniedException AuthFailure UnauthorizedOperation NotAuthorized InvalidClientTokenId"
        " UnrecognizedClientException SignatureDoesNotMatch InvalidSignatureException IncompleteSignature"
        " InvalidAccessKeyId InvalidToken ExpiredToken ExpiredTokenException TokenRefreshRequired RequestExpired"
        " RequestTimeTooSkewed MissingAuthenticationToken MissingAuthenticationTokenException OptInRequired"
    ),
    Finding(PERMANENT): (
        "ResourceNotFoundException QueueDoesNotExist AWS.SimpleQueueService.NonExistentQueue"
        " ConditionalCheckFailedException BucketAlreadyExists BucketAlreadyOwnedByYou EntityAlreadyExists"
    ),
}
AWS = {name: finding for finding, names in _AWS_NAMES.items() for name in names.split()}
"""Codes that say more than their status does: DynamoDB throttles with 400, and so do expired credentials."""

GOOGLE_LIMITS = frozenset(
    "rateLimitExceeded userRateLimitExceeded quotaExceeded dailyLimitExceeded dailyLimitExceededUnreg"
    " concurrentLimitExceeded servingLimitExceeded variableTermLimitExceeded"
    " RATE_LIMIT_EXCEEDED QUOTA_EXCEEDED RESOURCE_QUOTA_EXCEEDED RESOURCE_EXHAUSTED".split()
)
"""Reasons in the body of a Google error (the old `errors[].reason` and ErrorInfo) that mean a used-up limit."""

REDIS_REPLIES = {
    "LOADING": Finding(TRANSIENT),
    "BUSY": Finding(TRANSIENT),  # a script is running
    "CLUSTERDOWN": Finding(TRANSIENT),
    "MASTERDOWN": Finding(TRANSIENT),
    "TRYAGAIN": Finding(TRANSIENT),
    "READONLY": Finding(TRANSIENT),
    "NOREPLICAS": Finding(TRANSIENT),
    "MISCONF": CRITICAL,  # cannot write its snapshot: the disk
    "OOM": Finding(SYSTEM),
    "NOAUTH": Finding(AUTHENTICATION),
    "WRONGPASS": Finding(AUTHENTICATION),
    "NOPERM": Finding(AUTHENTICATION),
}
"""The first word of a Redis error reply is its code; redis-py keeps it in the text where it has no class for it."""
