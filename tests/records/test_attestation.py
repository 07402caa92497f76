"""Attestations: verified for real, by a Sigstore of our own, and kept beside their records."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import sigstore_authority
import yaml
from conftest import ROOT
from made_up_records import set_at
from records_project import Checkout, one_line_each
from sigstore_authority import NOW, RUN, Sigstore, make_statement

from warpshelf.core.files import dump_json
from warpshelf.core.findings import ShelfError
from warpshelf.records import bundle, store
from warpshelf.records.bundle import record_checksum

KEY = "imaginary-g9-80gb"


@pytest.fixture(scope="module")
def sigstore() -> Sigstore:
    return Sigstore()


@pytest.fixture
def root_file(sigstore: Sigstore, tmp_path: Path) -> Path:
    path = tmp_path / "root.json"
    path.write_text(sigstore.trusted_root())
    return path


def write_attestation(tmp_path: Path, value: object) -> Path:
    path = tmp_path / "attestation.json"
    path.write_text(json.dumps(value) + "\n")
    return path


def make_job_record(checked: Checkout, name: str = "softmax", **more: object) -> dict:
    return checked.make_record(name) | {"origin": {"job": RUN}} | more


def test_a_statement_of_our_job_is_verified(
    sigstore: Sigstore, root_file: Path, tmp_path: Path
) -> None:
    path = write_attestation(tmp_path, sigstore.sign_bundle(make_statement(["ab" * 32])))
    found = bundle.verify_statement(path, root_file)
    assert (found.digests, found.job) == ({"ab" * 32}, RUN)
    assert json.loads(found.text) == json.loads(path.read_text())


def flip_letter(text: str) -> str:
    middle = len(text) // 2
    return text[:middle] + ("A" if text[middle] != "A" else "B") + text[middle + 1 :]


Make = Callable[[Sigstore, dict], dict]


def sign_changed(change: Callable[[dict], None] = lambda found: None, **more: object) -> Make:
    """What signs a statement, its bundle changed afterwards."""

    def make_bundle(sigstore: Sigstore, stated: dict) -> dict:
        found = sigstore.sign_bundle(stated, **more)
        change(found)
        return found

    return make_bundle


def changed_checkpoint(text: str) -> str:
    head, tail = text.split("\n\n")
    return head + "\n\n" + tail[:30] + flip_letter(tail[30:])


OTHER = make_statement(["cd" * 32])
ENTRY = "verificationMaterial.tlogEntries.0"
WRONG: dict[str, tuple[Make, str]] = {
    "of another": (lambda _, stated: Sigstore().sign_bundle(stated), "signature does not match"),
    "of a fork": (
        sign_changed(identity=bundle.IDENTITY.replace("warpshelf/warpshelf", "mallory/warpshelf")),
        "SANs do not match .*mallory",
    ),
    "of a branch": (
        sign_changed(identity=bundle.IDENTITY.replace("heads/main", "heads/x")),
        "SANs do not match .*heads/x",
    ),
    "of another workflow": (
        sign_changed(identity=bundle.IDENTITY.replace("gpu.yml", "pages.yml")),
        "SANs do not match .*pages.yml",
    ),
    "of another issuer": (
        sign_changed(issuer="https://accounts.example"),
        "OIDCIssuer does not match",
    ),
    "of another run": (
        sign_changed(invocation=f"{RUN}8/attempts/1"),
        "OIDCRunInvocationURI does not match",
    ),
    "of another payload": (sign_changed(signed=OTHER), "DSSE: invalid signature"),
    "payload changed": (
        sign_changed(
            set_at(
                "dsseEnvelope.payload", sigstore_authority.encode_base64(json.dumps(OTHER).encode())
            )
        ),
        "DSSE: invalid signature",
    ),
    "signature changed": (
        sign_changed(set_at("dsseEnvelope.signatures.0.sig", flip_letter)),
        "DSSE: invalid signature",
    ),
    "after it expired": (
        sign_changed(when=NOW + timedelta(hours=1)),
        "not valid at validation time",
    ),
    "never logged": (
        sign_changed(set_at("verificationMaterial.tlogEntries", [])),
        "exactly one log entry",
    ),
    "log changed": (
        sign_changed(
            set_at(
                f"{ENTRY}.inclusionPromise.signedEntryTimestamp",
                sigstore_authority.encode_base64(b"\0" * 70),
            )
        ),
        "invalid inclusion promise",
    ),
    "checkpoint changed": (
        sign_changed(set_at(f"{ENTRY}.inclusionProof.checkpoint.envelope", changed_checkpoint)),
        "checkpoint: invalid signature",
    ),
    "certificate of nobody": (
        sign_changed(
            set_at(
                "verificationMaterial.certificate.rawBytes",
                sigstore_authority.encode_base64(b"none"),
            )
        ),
        "error parsing asn1 value",
    ),
}


@pytest.mark.parametrize(("make", "says"), WRONG.values(), ids=WRONG)
def test_what_does_not_hold_is_refused(
    make: Make, says: str, sigstore: Sigstore, root_file: Path, tmp_path: Path
) -> None:
    path = write_attestation(tmp_path, make(sigstore, make_statement(["ab" * 32])))
    with pytest.raises(
        ShelfError, match=rf"attestation\.json: does not verify: .*{says}"
    ) as refused:
        bundle.verify_statement(path, root_file)
    assert len(one_line_each(refused.value)) == 1


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        (make_statement([], "https://example.org/1"), "its job is 'https://example.org/1'"),
        (
            make_statement([]) | {"predicateType": "https://example.org"},
            "statement.predicateType is",
        ),
        (make_statement([]) | {"_type": "x"}, "statement._type is 'x'"),
        ({"_type": bundle.STATEMENT}, "statement lacks 'subject'"),
        ([], "statement is not an object"),
    ],
)
def test_another_statement_is_refused(stated: object, says: str, tmp_path: Path) -> None:
    payload = sigstore_authority.encode_base64(json.dumps(stated).encode())
    envelope = {"payloadType": bundle.PAYLOAD, "payload": payload}
    path = write_attestation(tmp_path, {"dsseEnvelope": envelope})
    with pytest.raises(ShelfError) as refused:
        bundle.read_statement(path, "a.json")
    [line] = one_line_each(refused.value)
    assert line.startswith("a.json: is not the attestation of a job: ") and says in line


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        '{"dsseEnvelope": 3}',
        '{"dsseEnvelope": {}}',
        '{"dsseEnvelope": {"payloadType": "text/plain"}}',
    ],
)
def test_another_file_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(ShelfError) as refused:
        bundle.read_statement(path, "a.json")
    assert len(one_line_each(refused.value)) == 1


def test_the_public_root_comes_with_the_library_and_knows_none_of_ours(
    sigstore: Sigstore, tmp_path: Path
) -> None:
    path = write_attestation(tmp_path, sigstore.sign_bundle(make_statement(["ab" * 32])))
    with pytest.raises(ShelfError, match="does not verify"):
        bundle.verify_statement(path)
    with pytest.raises(ShelfError, match="is not a trusted root"):
        bundle.verify_statement(path, path)


# --- beside records


def attest_records(checked: Checkout, sigstore: Sigstore, root: Path, *records: dict) -> dict:
    path = write_attestation(
        root.parent, sigstore.sign_bundle(make_statement([record_checksum(one) for one in records]))
    )
    return {"attested": bundle.verify_statement(path, root)}


def list_findings(checked: Checkout) -> list[str]:
    one = checked.snippets[0]
    return [str(found) for found in bundle.check_attestations(one, store.load_records(one)[0])]


def test_an_attested_record_comes_home_with_its_attestation(
    cpu_checkout: Checkout, sigstore: Sigstore, root_file: Path
) -> None:
    record = make_job_record(cpu_checkout)
    terms = attest_records(cpu_checkout, sigstore, root_file, record)
    assert cpu_checkout.import_bundle([record], **terms)[0] == [
        f"snippets/softmax/results/{KEY}.json"
    ]
    one = cpu_checkout.snippets[0]
    kept = store.attestation_path(one, KEY)
    assert kept == one.results / "attestations" / f"{KEY}.json"
    assert json.loads(kept.read_text()) == json.loads(
        (root_file.parent / "attestation.json").read_text()
    )
    assert bundle.checksum_lines([record, cpu_checkout.make_cpu_record()]) == (
        f"{record_checksum(record)}  snippets/softmax/results/{KEY}.json\n"
    )
    assert list_findings(cpu_checkout) == []
    before = cpu_checkout.read_files()
    assert cpu_checkout.import_bundle([record], **terms) == ([], [])
    assert cpu_checkout.read_files() == before


def test_a_record_of_a_job_is_refused_without_its_attestation(
    cpu_checkout: Checkout, sigstore: Sigstore, root_file: Path
) -> None:
    record = make_job_record(cpu_checkout)
    [line] = cpu_checkout.assert_refused([record], "without an attestation")
    assert "--attestation FILE" in line and "--by NAME" in line
    terms = attest_records(cpu_checkout, sigstore, root_file, record)
    cpu_checkout.assert_refused(
        [make_job_record(cpu_checkout, date="2026-11-23T00:00:00Z")], "changed since", **terms
    )
    other = make_job_record(cpu_checkout) | {"origin": {"job": f"{RUN}9"}}
    cpu_checkout.assert_refused([other], "but its attestation names", **terms)
    cpu_checkout.assert_refused([cpu_checkout.make_record()], "nothing to attest", **terms)
    assert cpu_checkout.import_bundle([record], by={"who": "Ada"})[0]
    assert list_findings(cpu_checkout) == []


def test_an_attestation_goes_with_its_record(
    cpu_checkout: Checkout, sigstore: Sigstore, root_file: Path
) -> None:
    record = make_job_record(cpu_checkout)
    cpu_checkout.import_bundle(
        [record], **attest_records(cpu_checkout, sigstore, root_file, record)
    )
    kept = store.attestation_path(cpu_checkout.snippets[0], KEY)
    later = make_job_record(
        cpu_checkout, date="2026-11-23T00:00:00Z", conditions={"load": {"watts": 300}}
    )
    cpu_checkout.import_bundle([later], **attest_records(cpu_checkout, sigstore, root_file, later))
    assert (
        store.load_records(cpu_checkout.snippets[0])[0][KEY] == later
        and list_findings(cpu_checkout) == []
    )
    mine = cpu_checkout.make_record() | {"date": "2026-11-24T00:00:00Z"}
    assert cpu_checkout.import_bundle([mine]) == ([], [])  # a person's that agrees says nothing new
    assert store.load_records(cpu_checkout.snippets[0])[0][KEY] == later and kept.exists()
    old = later | {"digest": "sha256:" + "0" * 64}
    store.record_path(cpu_checkout.snippets[0], KEY).write_text(
        dump_json(old)
    )  # as if the code had changed
    cpu_checkout.import_bundle([mine])
    assert store.load_records(cpu_checkout.snippets[0])[0][KEY] == mine
    assert not kept.exists()


def test_a_check_sees_what_does_not_belong_together(
    cpu_checkout: Checkout, sigstore: Sigstore, root_file: Path
) -> None:
    record = make_job_record(cpu_checkout)
    cpu_checkout.import_bundle(
        [record], **attest_records(cpu_checkout, sigstore, root_file, record)
    )
    one = cpu_checkout.snippets[0]
    place, kept = store.record_path(one, KEY), store.attestation_path(one, KEY)
    good, signed = place.read_text(), kept.read_text()
    place.write_text(good.replace('"watts":320', '"watts":321'))
    assert any("changed since" in line for line in list_findings(cpu_checkout))
    place.write_text(json.dumps(json.loads(good)))  # the same, laid out otherwise
    [line] = list_findings(cpu_checkout)
    assert "differs from the attested file" in line
    place.write_text(good)
    kept.write_text("{}")
    [line] = list_findings(cpu_checkout)
    assert line.startswith(
        f"snippets/softmax/results/attestations/{KEY}.json: is not the attestation"
    )
    kept.unlink()
    [line] = list_findings(cpu_checkout)
    assert "names a job as its origin, but has no attestation" in line
    kept.write_text(signed)
    (kept.parent / "nvidia-h100.json").write_text(signed)
    [line] = list_findings(cpu_checkout)
    assert line.endswith("attestations/nvidia-h100.json: belongs to no record; remove it")


def test_a_full_disk_leaves_neither_record_nor_attestation(
    cpu_checkout: Checkout, sigstore: Sigstore, root_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [make_job_record(cpu_checkout), make_job_record(cpu_checkout, "stream")]
    terms = attest_records(cpu_checkout, sigstore, root_file, *records)
    before = cpu_checkout.read_files()
    count = [0]

    def fill_disk(path: int) -> None:
        count[0] += 1
        if count[0] == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fill_disk)
    with pytest.raises(OSError):
        cpu_checkout.import_bundle(records, **terms)
    assert count == [3] and cpu_checkout.read_files() == before
    monkeypatch.undo()
    assert len(cpu_checkout.import_bundle(records, **terms)[0]) == 2


def test_the_workflow_is_the_one_that_signs() -> None:
    text = (ROOT / bundle.WORKFLOW).read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert jobs["measure"]["if"] == f"github.repository == '{bundle.REPOSITORY}'"
    assert set(jobs["attest"]["permissions"]) == {"id-token", "attestations"}
    signed = jobs["measure"]["steps"][-1]["with"]["path"].split()
    [step] = [one for one in jobs["attest"]["steps"] if one.get("id") == "attest"]
    assert step["with"]["subject-checksums"] in signed and "records.json" in signed
    assert f"https://github.com/{bundle.REPOSITORY}" in (ROOT / "pyproject.toml").read_text()


def list_broken_signatures(root: Path, trusted_root: Path | None = None) -> list[str]:
    """The attestations below `root` whose signatures do not hold; `shelf check` sees none."""
    found = []
    for path in sorted(root.glob("snippets/*/results/attestations/*.json")):
        try:
            bundle.verify_statement(path, trusted_root)
        except ShelfError as error:
            found += one_line_each(error)
    return found


def test_the_attestations_of_this_repository_hold() -> None:
    assert list_broken_signatures(ROOT) == []


def test_one_that_does_not_would_be_found(
    cpu_checkout: Checkout, sigstore: Sigstore, root_file: Path
) -> None:
    record = make_job_record(cpu_checkout)
    cpu_checkout.import_bundle(
        [record], **attest_records(cpu_checkout, sigstore, root_file, record)
    )
    assert list_broken_signatures(cpu_checkout.project.root, root_file) == []
    # the public root does not know it
    assert len(list_broken_signatures(cpu_checkout.project.root)) == 1
