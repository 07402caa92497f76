"""A Sigstore of our own, offline: a certificate authority, its logs, and what jobs sign with them.

What it signs is whole: a certificate with its log's promise, an envelope, an entry in a log of one
leaf with its checkpoint. Nothing of it is known to anyone but the trusted root that it writes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from warpshelf.records import bundle

NOW = datetime(2026, 11, 22, 8, tzinfo=UTC)
RUN = f"https://github.com/{bundle.REPOSITORY}/actions/runs/17"
FULCIO = "1.3.6.1.4.1.57264.1"
PROMISES = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")  # of certificate logs, in a certificate
NAME = "rekor.example"
USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
    "key_agreement", "encipher_only", "decipher_only", "key_cert_sign", "crl_sign",
)  # fmt: skip


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def encode_public_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(encode_public_key(key)).digest()


def sign_data(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


def make_statement(digests: list[str], invocation: str = f"{RUN}/attempts/1") -> dict:
    """What GitHub's action states of files that a job made, as far as anyone here reads it."""
    return {
        "_type": bundle.STATEMENT,
        "subject": [
            {"name": f"snippets/{n}.json", "digest": {"sha256": digest}}
            for n, digest in enumerate(digests)
        ],
        "predicateType": bundle.PROVENANCE,
        "predicate": {"runDetails": {"metadata": {"invocationId": invocation}}},
    }


class Sigstore:
    """One of our own; each part of what it signs can be made wrong."""

    def __init__(self) -> None:
        made = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]
        self.authority, self.certificates, self.log = made
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority.example")])
        usage = dict.fromkeys(USAGES, False)
        self.usage = usage
        self.root = (
            self._begin_certificate(self.authority.public_key(), timedelta(days=3650))
            .subject_name(self.name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(**usage | {"key_cert_sign": True, "crl_sign": True}), critical=True
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self.authority.public_key()),
                critical=False,
            )
            .sign(self.authority, hashes.SHA256())
        )

    def _begin_certificate(self, key: Any, lasts: timedelta) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - timedelta(minutes=1))
            .not_valid_after(NOW + lasts)
        )

    def trusted_root(self) -> str:
        """The text of the file by which others trust it."""

        def describe_key(key: ec.EllipticCurvePrivateKey, url: str) -> dict:
            return {
                "baseUrl": url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": encode_base64(encode_public_key(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": {"start": "2026-01-01T00:00:00Z"},
                },
                "logId": {"keyId": encode_base64(key_id(key))},
            }

        chain = {
            "certificates": [{"rawBytes": encode_base64(self.root.public_bytes(Encoding.DER))}]
        }
        authority = {
            "subject": {"organization": "example", "commonName": "authority.example"},
            "uri": "https://authority.example",
            "certChain": chain,
            "validFor": {"start": "2026-01-01T00:00:00Z"},
        }
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [describe_key(self.log, f"https://{NAME}")],
                "certificateAuthorities": [authority],
                "ctlogs": [describe_key(self.certificates, "https://certificates.example")],
                "timestampAuthorities": [],
            }
        )

    def issue_certificate(
        self, key: ec.EllipticCurvePrivateKey, identity: str, issuer: str, invocation: str
    ) -> x509.Certificate:
        """One for ten minutes, with the promise of the log of certificates."""

        def make_extension(number: int, value: bytes) -> x509.UnrecognizedExtension:
            return x509.UnrecognizedExtension(ObjectIdentifier(f"{FULCIO}.{number}"), value)

        text = invocation.encode()
        builder = (
            self._begin_certificate(key.public_key(), timedelta(minutes=10))
            .subject_name(x509.Name([]))
            .add_extension(x509.KeyUsage(**self.usage | {"digital_signature": True}), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key()),
                critical=False,
            )
            .add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]),
                critical=True,
            )
            .add_extension(make_extension(1, issuer.encode()), critical=False)
            .add_extension(make_extension(21, bytes([12, len(text)]) + text), critical=False)
        )
        early = builder.sign(self.authority, hashes.SHA256()).tbs_certificate_bytes
        when = int(NOW.timestamp() * 1000)
        entry = struct.pack("!BBQH", 0, 0, when, 1) + key_id(self.authority)
        entry += len(early).to_bytes(3, "big") + early + b"\0\0"
        signature = sign_data(self.certificates, entry)
        promise = b"\0" + key_id(self.certificates) + struct.pack("!QH", when, 0)
        promise += bytes([4, 3]) + len(signature).to_bytes(2, "big") + signature
        promise = len(promise).to_bytes(2, "big") + promise
        promise = len(promise).to_bytes(2, "big") + promise
        octets = bytes([4, len(promise)] if len(promise) < 128 else [4, 129, len(promise)])
        promised = x509.UnrecognizedExtension(PROMISES, octets + promise)
        return builder.add_extension(promised, critical=False).sign(self.authority, hashes.SHA256())

    def sign_bundle(
        self,
        stated: dict,
        *,
        identity: str = bundle.IDENTITY,
        issuer: str = bundle.ISSUER,
        invocation: str | None = None,
        when: datetime = NOW,
        signed: dict | None = None,
    ) -> dict:
        """The bundle of a statement that a job signed; `signed` is what it signed instead."""
        own = ec.generate_private_key(ec.SECP256R1())
        run = stated["predicate"]["runDetails"]["metadata"]["invocationId"]
        leaf = self.issue_certificate(own, identity, issuer, invocation or run)
        payload = json.dumps(stated).encode()
        told = payload if signed is None else json.dumps(signed).encode()
        kind = bundle.PAYLOAD
        envelope = f"DSSEv1 {len(kind)} {kind} {len(told)} ".encode() + told
        signature = encode_base64(sign_data(own, envelope))
        body = {
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": {"algorithm": "sha256", "value": hashlib.sha256(b"").hexdigest()},
                "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(told).hexdigest()},
                "signatures": [
                    {
                        "signature": signature,
                        "verifier": encode_base64(leaf.public_bytes(Encoding.PEM)),
                    }
                ],
            },
        }
        text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        root = hashlib.sha256(b"\0" + text).digest()
        at = int(when.timestamp())
        note = f"{NAME} - 1\n1\n{encode_base64(root)}\n"
        checkpoint = encode_base64(key_id(self.log)[:4] + sign_data(self.log, note.encode()))
        promised = {
            "body": encode_base64(text),
            "integratedTime": at,
            "logID": key_id(self.log).hex(),
            "logIndex": 0,
        }
        canonical = json.dumps(promised, sort_keys=True, separators=(",", ":")).encode()
        entry = {
            "logIndex": "0",
            "logId": {"keyId": encode_base64(key_id(self.log))},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(at),
            "inclusionPromise": {
                "signedEntryTimestamp": encode_base64(sign_data(self.log, canonical))
            },
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": encode_base64(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n— {NAME} {checkpoint}\n"},
            },
            "canonicalizedBody": encode_base64(text),
        }
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": encode_base64(leaf.public_bytes(Encoding.DER))},
                "tlogEntries": [entry],
            },
            "dsseEnvelope": {
                "payload": encode_base64(payload),
                "payloadType": kind,
                "signatures": [{"sig": signature}],
            },
        }
