"""Copies of certificates without their private keys: spec.copyAs and spec.merge of rules."""

from base64 import b64decode, b64encode
from datetime import timedelta
from typing import Any

import pytest

from tests.api.conftest import Run
from tests.api.test_safety import ready
from tests.apis import Api, Object
from tests.canary import canary
from tests.certificates import NOW, certificate, issued, private_key
from tests.worlds import at, configmap, encoded, rule, secret, service_account

CA = {"include": ["ca.crt"]}
AS_CONFIGMAP = {"kind": "ConfigMap"}
BUNDLE = {"key": "ca-bundle.crt"}


def with_form(api: Api, home: str, team: str, name: str = "ca", **spec: Any) -> Object:
    return api.create(rule(name, home, team, **{"ruleType": "secret", "keys": CA, "copyAs": AS_CONFIGMAP, **spec}))


def bundle_of(api: Api, namespace: str) -> list[str]:
    """Return the certificates of the bundle in a namespace, in their order."""
    text = api.read(configmap(namespace, "trust"))["data"]["ca-bundle.crt"]
    return [f"{each}-----END CERTIFICATE-----\n" for each in text.split("-----END CERTIFICATE-----\n") if each]


def test_a_certificate_authority_becomes_a_configmap_without_its_key(api: Api, sync: Run, home: str, team: str) -> None:
    source = api.create(issued(home))
    with_form(api, home, team)

    ran = sync("--diff")
    copy = api.read(configmap(team, "ca"))

    assert (ran.summary, copy["data"]) == ({"created": 1}, {"ca.crt": certificate("root")})
    assert "binaryData" not in copy
    assert copy["metadata"]["annotations"]["kubechores.dev/source"] == f"Secret/{home}/ca"
    assert ready(api, "ca") == {"status": "True", "reason": "Synced", "message": "1 copy"}
    assert (sync().summary, sync("--verify", "content").summary) == ({"unchanged": 1}, {"unchanged": 1})

    api.patch(source, {"data": {"ca.crt": encoded(certificate("next"))}})
    assert sync().summary == {"configured": 1}
    assert api.read(copy)["data"] == {"ca.crt": certificate("next")}
    api.patch(copy, {"data": {"ca.crt": "edited"}})
    assert sync().results[0]["reason"] == "data.ca.crt changed by tests"
    api.delete(source)
    assert (sync().summary, api.get(copy)) == ({"deleted": 1}, None)


def test_a_certificate_authority_becomes_an_opaque_secret(api: Api, sync: Run, home: str, team: str) -> None:
    api.create(issued(home))
    with_form(api, home, team, copyAs={"kind": "Secret", "type": "Opaque"})

    assert sync().summary == {"created": 1}
    copy = api.read(secret(team, "ca"))
    assert (copy["type"], copy["data"]) == ("Opaque", {"ca.crt": encoded(certificate("root"))})
    assert sync().summary == {"unchanged": 1}


def test_a_value_that_is_not_only_certificates_is_refused_also_if_it_appears_later(
    api: Api, sync: Run, home: str, team: str
) -> None:
    source = api.create(issued(home))
    with_form(api, home, team, keys={"include": ["*.crt", "*.pem"]})
    assert sync().summary == {"created": 1}
    copied = api.read(configmap(team, "ca"))["data"]

    root, key = certificate("root"), private_key()
    hidden = key.replace("PRIVATE KEY", "CERTIFICATE")
    for value in (key, root + key, key + root, f"# {canary()}\n{root}", f"{root}\n{canary()}", hidden, canary(), ""):
        api.patch(source, {"data": {"extra.pem": encoded(value)}})
        ran = sync("-v", "--diff")
        assert ran.report["summary"] == {"refused": 1}, value
        assert "key extra.pem" in ran.results[0]["reason"]
        assert api.read(configmap(team, "ca"))["data"] == copied, "the copy stays"
        assert ready(api, "ca")["reason"] == "SourceRefused"

    api.patch(source, {"data": {"extra.pem": encoded(f"\n{root}\r\n")}})
    assert sync().summary == {"configured": 1}
    assert api.read(configmap(team, "ca"))["data"]["extra.pem"] == root


@pytest.mark.parametrize("kind", ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"])
def test_what_is_never_copied_is_not_copied_in_another_form(
    api: Api, sync: Run, home: str, team: str, kind: str
) -> None:
    data = {"ca.crt": encoded(certificate("root")), "token": encoded(canary()), "token-id": encoded(canary())}
    source = secret(home, "ca", type=kind, data=data)
    source["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "reader"}
    api.create(service_account(home, "reader"))  # a controller deletes the token of an account that does not exist
    api.create(source)
    with_form(api, home, team)

    assert {each["code"] for each in sync("-v").results} == {"nothing-selected", "skipped"}
    assert api.get(configmap(team, "ca")) is None


def test_sources_become_one_bundle_without_duplicates_in_an_order_of_their_own(
    api: Api, sync: Run, home: str, team: str
) -> None:
    names = ("one", "two", "three")
    roots = {name: certificate(name) for name in names}
    for name in names:
        api.create(issued(home, name, ca=roots[name] + roots["one"]))
    with_form(api, home, f"*-{api.token}", "trust", merge=BUNDLE, targetName="trust")

    assert sync().summary == {"created": 2}, "also in the namespace of the sources"
    first = bundle_of(api, team)
    assert sorted(first) == sorted(roots.values())
    assert sync().summary == {"unchanged": 2}
    assert api.read(rule("trust", "", ""))["status"]["sources"] == 3

    # Under other names, and created in another order, they are the same bundle.
    for name in names:
        api.delete(issued(home, name))
    for number, name in enumerate(reversed(names)):
        api.create(issued(home, f"other-{number}", ca=roots[name]))
    assert (sync().summary, bundle_of(api, team)) == ({"unchanged": 2}, first)

    api.patch(issued(home, "other-0"), {"data": {"ca.crt": encoded(certificate("four"))}})
    api.mark()
    assert sync().summary == {"configured": 2}
    assert len([each for each in api.writes() if "/configmaps/" in each.path]) == 2, "each copy once"
    assert sorted(bundle_of(api, team)) == sorted([roots["one"], roots["two"], certificate("four")])


def test_a_bundle_stays_while_one_of_its_sources_is_refused_and_shrinks_when_it_is_deleted(
    api: Api, sync: Run, home: str, team: str
) -> None:
    for name in ("one", "two"):
        api.create(issued(home, name, ca=certificate(name)))
    with_form(api, home, team, "trust", merge=BUNDLE, targetName="trust")
    sync()
    before = bundle_of(api, team)

    api.patch(issued(home, "one"), {"data": {"ca.crt": encoded(private_key())}})
    ran = sync()
    assert (ran.summary, bundle_of(api, team)) == ({"refused": 1}, before)
    assert ready(api, "trust")["reason"] == "SourceRefused"

    api.delete(issued(home, "one"))
    assert (sync().summary, bundle_of(api, team)) == ({"configured": 1}, [certificate("two")])
    api.delete(issued(home, "two"))
    assert sync().exit_code == 0
    assert api.get(configmap(team, "trust")) is None


def test_expired_certificates_are_reported_and_stay(api: Api, sync: Run, home: str, team: str) -> None:
    old = certificate("old", NOW - timedelta(days=3))
    api.create(issued(home, "one", ca=certificate("root") + old))
    with_form(api, home, team, "trust", merge=BUNDLE, targetName="trust")

    ran = sync()

    assert ran.summary == {"created": 1, "expired": 1}
    (found,) = [each["reason"] for each in ran.results if each["code"] == "expired"]
    assert found.startswith("CN=old (")
    assert old in bundle_of(api, team)
    assert ready(api, "trust")["reason"] == "Synced"
    assert sync("--check").exit_code == 3


def test_a_subject_that_cannot_be_decoded_or_is_of_a_secret_is_not_shown(
    api: Api, sync: Run, home: str, team: str
) -> None:
    old = certificate("old", NOW - timedelta(days=3))
    wrong = old_with_subject_of_another_type(old)
    api.create(issued(home, "one", ca=wrong))
    with_form(api, home, team, "trust", merge=BUNDLE, targetName="trust")
    with_form(api, home, team, "hidden", copyAs={"kind": "Secret"}, merge=BUNDLE, targetName="hidden")

    found = [each["reason"] for each in sync().results if each["code"] == "expired"]

    assert [each.startswith("serial number ") for each in found] == [True, True]


def old_with_subject_of_another_type(pem: str) -> str:
    """Return a certificate whose common name is of a type that only other attributes can have."""
    encoded = b64decode("".join(pem.splitlines()[1:-1])).replace(b"\x0c\x03old", b"\x03\x03old")
    return f"-----BEGIN CERTIFICATE-----\n{b64encode(encoded).decode()}\n-----END CERTIFICATE-----\n"


def test_a_value_that_is_not_text_is_refused_without_a_byte_of_it(api: Api, sync: Run, home: str, team: str) -> None:
    api.create(secret(home, "ca", data={"ca.crt": b64encode(b"0\x81\xb7" + canary().encode()).decode()}))
    with_form(api, home, team)

    ran = sync("-v")

    assert ran.results[0]["reason"] == "key ca.crt is not text; correct the source, or spec.keys of the rule"
    assert "codec" not in str(ran.report) + str(ready(api, "ca"))


def test_configmaps_are_merged_too_and_a_bundle_may_be_a_secret(api: Api, sync: Run, home: str, team: str) -> None:
    for name in ("one", "two"):
        api.create(configmap(home, name, data={"ca.pem": certificate(name)}))
    api.create(rule("maps", home, team, merge=BUNDLE, targetName="trust"))
    api.create(issued(home))
    with_form(api, home, team, "secrets", copyAs={"kind": "Secret"}, merge=BUNDLE, targetName="trust")

    assert sync().summary == {"created": 2}
    assert sorted(bundle_of(api, team)) == sorted([certificate("one"), certificate("two")])
    assert api.read(secret(team, "trust"))["data"] == {"ca-bundle.crt": encoded(certificate("root"))}

    api.patch(configmap(home, "two"), {"binaryData": {"more": "AAEC"}})
    assert sync().summary == {"refused": 1, "unchanged": 1}


def test_a_rule_that_no_longer_converts_replaces_its_copies(api: Api, sync: Run, home: str, team: str) -> None:
    source = api.create(issued(home))
    with_form(api, home, team)
    sync()

    api.patch(rule("ca", "", ""), {"spec": {"copyAs": None, "keys": None}})

    assert sync().summary == {"created": 1, "deleted": 1}
    assert api.read(at(team, source))["type"] == "kubernetes.io/tls"
    assert api.get(configmap(team, "ca")) is None
