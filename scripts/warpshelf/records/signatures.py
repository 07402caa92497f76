"""Whether a signature on an attestation holds: made by this project's GPU job, and logged.

Enters: a Sigstore bundle and, if not the public one, a trusted root. Leaves: what it states. Needs
the library sigstore, the extra `trust`; no network, since the public root comes with the library.
"""

from __future__ import annotations

import logging
from pathlib import Path

from warpshelf.core.findings import Finding, ShelfError, install
from warpshelf.records import attestation
from warpshelf.records.attestation import IDENTITY, ISSUER, PAYLOAD, Statement


def verified(path: Path, trusted_root: Path | None = None) -> Statement:
    """What the bundle at `path` states, once its signature has been seen to hold.

    The certificate must be of Fulcio, chain to the trusted root, be logged, and name this project's
    GPU workflow on main and the run that the statement names; the signature must be of its key and
    in the transparency log, at a time at which the certificate was valid.

    Raises:
        ShelfError: any of this fails, or sigstore is not installed.
    """
    shown = path.as_posix()
    statement = attestation.read(path, shown)
    try:
        from sigstore.errors import Error
        from sigstore.models import Bundle, TrustedRoot
        from sigstore.verify import Verifier, policy
    except ModuleNotFoundError:
        what = "cannot be verified: sigstore is not installed in this environment"
        raise ShelfError(Finding(shown, None, what, install("trust"))) from None
    logging.getLogger("sigstore").setLevel(logging.ERROR)  # that it is offline is no news
    identity = policy.AllOf(
        [
            policy.Identity(identity=IDENTITY, issuer=ISSUER),
            policy.OIDCRunInvocationURI(statement.invocation),
        ]
    )
    try:
        if trusted_root is None:
            verifier = Verifier.production(offline=True)
        else:
            verifier = Verifier(trusted_root=TrustedRoot.from_file(str(trusted_root)))
    except (Error, ValueError, OSError) as error:
        where = shown if trusted_root is None else trusted_root.as_posix()
        what = f"is no trusted root: {_line(error)}"
        raise ShelfError(Finding(where, None, what, "name one of Sigstore's")) from None
    try:
        kind, _ = verifier.verify_dsse(Bundle.from_json(statement.text), identity)
        if kind != PAYLOAD:
            raise ValueError(f"its payload is {kind!r:.60}")
    except (Error, ValueError) as error:
        what = f"does not hold: {_line(error)}"
        raise ShelfError(Finding(shown, None, what, attestation.MEND)) from None
    return statement


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]
