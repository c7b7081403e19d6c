"""mirror-audit --images: whether registries have the images of pods and CronJobs."""

from pathlib import Path

import pytest

from jobs.core.mirror_audit import image_checks
from jobs.kit.values.text import brief
from tests import rates
from tests.api.conftest import Ran, Run
from tests.apis import Api, wait_for
from tests.canary import canary
from tests.hostile_registries import HOSTILE
from tests.image_registries import (
    HUB,
    MANIFEST,
    TOKENS,
    ImageRegistries,
    account,
    basic,
    cron_job,
    digest,
    namespace,
    pod,
    pull_login,
)
from tests.manifests import everything
from tests.mirrors import NAMESPACE, Mirrors

pytestmark = pytest.mark.usefixtures("installed", "no_pauses")
PULLS = "kube-chores-mirror-audit-pull-secrets"


@pytest.fixture
def team(api: Api) -> str:
    """A namespace in which pods can be created."""
    return namespace(api, "team")


@pytest.fixture
def host(api: Api) -> str:
    """The name of a registry that only this test has."""
    return f"r-{api.token}.example.com"


def of(ran: Ran, host: str) -> list[tuple[str, str]]:
    """Return the codes and names of the findings about images of a registry, and about it."""
    found = [each for each in ran.results if each["object"]["kind"] in ("Image", "Registry")]
    return [(each["code"], each["object"]["name"].replace(host, "R")) for each in found if host in str(each["object"])]


def reason(ran: Ran, code: str, host: str) -> str:
    (found,) = [each for each in ran.results if each["code"] == code and host in str(each["object"])]
    return str(found["reason"])


def test_images_that_no_registry_has_are_reported_with_their_users(
    api: Api, check_images: Run, images: ImageRegistries, team: str, host: str
) -> None:
    registry = images.registry(host)
    registry.push("app:1")
    pod(api, team, "healthy", f"{host}/app:1")
    pod(api, team, "gone", f"{host}/app:2")
    pod(api, team, "without-tag", f"{host}/app")
    pod(api, team, "by-digest", f"{host}/app@{digest(1)}")
    pod(api, team, "by-lost-digest", f"{host}/app:1@{digest(9)}")
    pod(api, team, "ended", f"{host}/app:3", phase="Succeeded")
    cron_job(api, team, "nightly", f"{host}/app:2")
    api.mark()

    ran = check_images()

    assert of(ran, host) == [
        ("image-missing", "R/app"),
        ("image-missing", f"R/app:1@{digest(9)}"),
        ("image-missing", "R/app:2"),
    ]
    (two,) = [each for each in ran.results if each["object"]["name"] == f"{host}/app:2"]
    users = f"cronjob/nightly in namespace {team}, pod/gone in namespace {team}"
    assert two["reason"] == f"its registry does not have it; used by {users}"
    assert (two["severity"], ran.exit_code, check_images("--check").exit_code) == ("critical", 0, 3)
    assert sorted(images.asked(host)) == [
        f"app/manifests/{each}" for each in ("1", "2", "latest", digest(1), digest(9))
    ]
    lists = [each.path for each in api.requests() if each.path.endswith(("/api/v1/pods", "/batch/v1/cronjobs"))]
    assert len(lists) == 4, "two lists in each run"


def test_without_the_option_no_pod_is_listed_and_no_registry_asked(
    api: Api, check_images: Run, images: ImageRegistries, team: str, host: str
) -> None:
    pod(api, team, "gone", f"{host}/app:2")
    api.mark()

    ran = check_images(env={"CHORES_IMAGES": ""})

    assert ran.report["facts"].keys() == {"mirrors"}
    assert [each for each in api.requests() if each.path.endswith(("/pods", "/cronjobs"))] == []
    assert images.asked(host) == []


def test_a_tag_that_moved_since_the_pod_started_is_reported(
    api: Api, check_images: Run, images: ImageRegistries, team: str, host: str
) -> None:
    registry = images.registry(host)
    for number in (1, 2, 3):
        registry.push("app:1", number)
    registry.push("single:1", 5, MANIFEST)
    registry.push("platform:1", 7, MANIFEST)
    registry.push("platform:1", 8)
    pod(api, team, "a-new", f"{host}/app:1", digest(3))
    pod(api, team, "b-old", f"{host}/app:1", digest(2))
    pod(api, team, "c-old", f"{host}/app:1", digest(2))
    pod(api, team, "d-pinned", f"{host}/app:1@{digest(1)}", digest(1))
    pod(api, team, "e-single", f"{host}/single:1", digest(4))
    # Its runtime reports the manifest of the platform, which the index of the tag may have.
    pod(api, team, "f-platform", f"{host}/platform:1", digest(7))

    ran = check_images()

    assert of(ran, host) == [("image-moved", "R/app:1"), ("image-moved", "R/single:1")]
    assert f"{digest(3)} now; pod/b-old in namespace {team} and 1 more run {digest(2)}" in reason(
        ran, "image-moved", f"{host}/app:1"
    )
    del registry.manifests[f"app/manifests/{digest(2)}"]
    assert "which the registry no longer has" in reason(check_images(), "image-moved", f"{host}/app:1")


@pytest.mark.parametrize("tokens", [False, True], ids=["basic", "token"])
def test_a_registry_with_a_login_is_checked_with_the_pull_secrets_of_the_pods(
    api: Api, check_images: Run, images: ImageRegistries, team: str, host: str, tokens: bool
) -> None:
    registry = images.registry(host)
    registry.push("app:1")
    found = registry.require_login(tokens=tokens)
    other = namespace(api, "other")
    pull_login(api, team, host, found)
    pull_login(api, other, host, (found[0], "wrong-" + found[1]))
    pull_login(api, team, f"{host}:5000", found, "other-port")
    secrets = [{"name": "login"}]
    pod(api, team, "good", f"{host}/app:1", imagePullSecrets=secrets)
    cron_job(api, team, "gone", f"{host}/app:2", imagePullSecrets=secrets)
    pod(api, team, "without", f"{host}/app:3", imagePullSecrets=[{"name": "other-port"}, {"name": "absent"}])
    pod(api, other, "wrong", f"{host}/app:4", imagePullSecrets=secrets)
    api.create({**account(team, "robot"), "imagePullSecrets": secrets})
    cron_job(api, team, "of-account", f"{host}/app:5", serviceAccountName="robot")
    registry.push("app:5", 5)
    cron_job(api, team, "of-default", f"{host}/app:1")

    ran = check_images()

    assert of(ran, host) == [
        ("image-no-access", "R/app:1"),
        ("image-missing", "R/app:2"),
        ("image-no-access", "R/app:3"),
        ("image-no-access", "R/app:4"),
    ]
    account_names = f"serviceaccount/default in namespace {team} names no pull secret"
    assert account_names in reason(ran, "image-no-access", f"{host}/app:1"), "the pod has access, the CronJob has not"
    without, wrong = (reason(ran, "image-no-access", f"{host}/app:{number}") for number in (3, 4))
    assert f"secret/other-port, secret/absent in namespace {team} has none for it" in without
    assert f"refuses access with the login of secret/login in namespace {other}" in wrong
    receivers = {at for _, at, _, authorization in images.requests if authorization.startswith("Basic")}
    assert receivers == ({TOKENS} if tokens else {host})


def test_without_permission_to_read_pull_secrets_a_login_is_no_finding(
    api: Api, check_images: Run, images: ImageRegistries, team: str, host: str
) -> None:
    registry = images.registry(host)
    pull_login(api, team, host, registry.require_login())
    pod(api, team, "private", f"{host}/app:1", imagePullSecrets=[{"name": "login"}])
    cron_job(api, team, "nightly", f"{host}/app:2")
    api.delete(next(each for each in everything() if each["metadata"]["name"] == f"{PULLS}" and "rules" in each))
    wait_for(
        lambda: of(check_images("-v"), host)[:1] == [("image-not-checked", "R/app:1")], "the permission to be gone"
    )

    ran = check_images("-v")

    assert of(ran, host) == [("image-not-checked", "R/app:1"), ("image-not-checked", "R/app:2")]
    (one,) = [each for each in ran.results if each["object"]["name"] == f"{host}/app:1"]
    assert one["severity"] == "info"
    assert f"secret/login in namespace {team} cannot be read: " in one["reason"]
    assert (ran.exit_code, of(check_images(), host)) == (0, [])


def test_a_registry_that_limits_requests_gets_no_more_and_the_next_runs_begin_with_other_images(
    api: Api, check_images: Run, images: ImageRegistries, team: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = images.registry(host)
    names = [f"app:{number}" for number in range(9)]
    for number, each in enumerate(names):
        registry.push(each, number)
        pod(api, team, f"pod-{number}", f"{host}/{each}")
    asked = set()

    for turn in range(9):
        monkeypatch.setattr(image_checks, "turn_of", lambda _, turn=turn: turn)
        registry.limit = 2
        images.requests.clear()
        ran = check_images()
        asked |= set(images.asked(host)[:2])
        assert len(images.asked(host)) == 3
        assert of(ran, host) == [("image-rate-limited", "R")]
        assert "answers 429 Too Many Requests; 7 of 9 images were not checked" in reason(
            ran, "image-rate-limited", host
        )
        assert ran.report["facts"]["checked"] >= 2

    assert len(asked) == 9
    registry.limit = 1000
    assert (of(check_images("--images=4"), host), check_images("--images=4").report["facts"]["images"] >= 9) == (
        [],
        True,
    )
    images.requests.clear()
    check_images("--images=4")
    assert len(images.asked(host)) == 3, "9 images in 3 runs"


def test_a_mirror_counts_if_the_registry_does_not_confirm_an_image(
    api: Api, check_images: Run, images: ImageRegistries, mirrors: Mirrors, team: str, host: str
) -> None:
    mirror = mirrors.healthy("own", host)
    cache = f"{mirror.name}.{NAMESPACE}.svc:5000"
    registry, cached = images.registry(host), images.registry(cache)
    registry.push("app:1")
    for number in (2, 3):
        cached.push(f"app:{number}", number)
    for number in (1, 2, 4):
        pod(api, team, f"pod-{number}", f"{host}/app:{number}")

    ran = check_images()

    assert of(ran, host) == [("image-only-cached", "R/app:2"), ("image-missing", "R/app:4")]
    assert f"only the cache of mirror http://{cache} has it" in reason(ran, "image-only-cached", host)
    assert set(images.asked(cache)) >= {"app/manifests/2", "app/manifests/4"}
    assert "app/manifests/1" not in images.asked(cache), "a mirror pulls what it does not have"
    registry.require_login()
    pod(api, team, "pod-3", f"{host}/app:3", digest(3))
    assert of(check_images(), host) == [("image-no-access", "R/app:1"), ("image-no-access", "R/app:4")]
    registry.answer = rates.redirect("ftp://elsewhere.example.com/")
    found = of(check_images(), host)
    assert ("image-missing", "R/app:4") not in found, "without an answer of the registry itself, it is not known"
    assert found == [("image-unreachable", "R")]
    assert {authorization for _, at, _, authorization in images.requests if at == cache} == {""}
    images.requests.clear()
    registry.answer = rates.status(429)
    assert of(check_images(), host) == [("image-rate-limited", "R")]
    assert [each for each in images.asked(cache) if each] == [], "it would send the requests to the registry"


def test_a_hostile_registry_is_reported_and_delays_no_other(
    api: Api, check_images: Run, images: ImageRegistries, team: str, host: str
) -> None:
    names = {case: f"h{number}-{host}" for number, case in enumerate(HOSTILE)}
    hostile = namespace(api, "hostile")
    for case, name in names.items():
        images.registry(name).answer = HOSTILE[case][0](name)
        pod(api, hostile, name.partition(".")[0], f"{name}/app:1")
    images.registry(host).push("app:1")
    pod(api, team, "gone", f"{host}/app:2")

    ran = check_images()

    found = {each["object"]["name"]: each for each in ran.results if each["object"]["kind"] in ("Image", "Registry")}
    for case, name in names.items():
        assert found[name]["code"] == "image-unreachable", case
        assert HOSTILE[case][1] in found[name]["reason"], case
    assert (found[f"{host}/app:2"]["code"], ran.exit_code) == ("image-missing", 0)


def test_logins_go_to_no_other_host_than_their_own_and_its_token_server(
    api: Api, check_images: Run, images: ImageRegistries, team: str, host: str
) -> None:
    other, elsewhere = f"o-{host}", f"elsewhere-{host}"
    found = ("robot", canary())
    pull_login(api, team, host, found)
    secrets = [{"name": "login"}]
    # A registry of a tenant has no entry in the pull secret; another one redirects to a host that wants the login.
    images.registry(other).require_login()
    pod(api, team, "other", f"{other}/app:1", imagePullSecrets=secrets)
    images.registry(elsewhere).require_login(tokens=False)
    registry = images.registry(host)
    registry.login = found
    registry.answer = lambda handler: (
        rates.redirect(f"https://{elsewhere}/v2/app/manifests/1")
        if handler.headers.get("Authorization")
        else rates.status(401, WWW_Authenticate='Basic realm="x"')
    )(handler)
    pod(api, team, "redirected", f"{host}/app:1", imagePullSecrets=secrets)
    # The login of another namespace is never used for the images of a tenant.
    tenant = namespace(api, "tenant")
    pod(api, tenant, "private", f"{host}/app:1", imagePullSecrets=secrets)

    check_images()

    assert images.sent(host) == {basic(found)}
    assert (images.sent(other), images.sent(elsewhere)) == ({"Bearer of-nobody"}, set())
    assert [at for _, at, _, sent in images.requests if sent.startswith("Basic") and at != host] == []
    reads = [each.path for each in api.requests() if "/secrets/" in each.path and each.status == 200]
    assert [each for each in reads if f"/{tenant}/" in each] == []


BAD = {
    "a b": "image-missing",
    "UPPER/case:1": "image-missing",
    "app:": "image-missing",
    "app@sha256:1": "image-missing",
    "x" * 600: "image-missing",
    "\u202eapp": "image-missing",
    "[::1]:5000/app:1": "image-not-checked",
    "localhost/app:1": "image-not-checked",
    "localhost:5000/app:1": "image-not-checked",
    "127.0.0.1:5000/app:1": "image-not-checked",
    "169.254.169.254/latest/meta-data:1": "image-not-checked",
    "0.0.0.0/app": "image-not-checked",
}


def test_images_that_are_not_valid_or_of_the_node_itself_are_not_requested(
    api: Api, check_images: Run, images: ImageRegistries, team: str, host: str
) -> None:
    for number, image in enumerate(BAD):
        cron_job(api, team, f"bad-{number}", image)

    ran = check_images("-v")

    found = {each["object"]["name"]: each["code"] for each in ran.results if each["object"]["kind"] == "Image"}
    for image, code in BAD.items():
        assert found[brief(image, 200)] == code, image
    assert {at for _, at, _, _ in images.requests} <= {HUB}, "of the CronJobs of the installation"


def test_an_image_without_a_registry_is_one_of_docker_hub(
    api: Api, check_images: Run, images: ImageRegistries, team: str
) -> None:
    registry, name = images.registry(HUB), f"app-{api.token}"
    registry.push(f"library/{name}:latest")
    registry.push(f"shop/{name}:1")
    found = registry.require_login()
    pull_login(api, team, "https://index.docker.io/v1/", found)
    secrets = [{"name": "login"}]
    for number, image in enumerate((name, f"docker.io/shop/{name}:1", f"index.docker.io/library/{name}:2")):
        pod(api, team, f"pod-{number}", image, imagePullSecrets=secrets)

    ran = check_images("-v")

    assert of(ran, name) == [("image-missing", "index.docker.io/library/R:2")]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--images=many"], "'many' is not a valid integer range"),
        (["--images", "--repair"], "--images cannot be used with --repair."),
    ],
    ids=str,
)
def test_a_number_of_images_that_is_not_valid_exits_2(check_images: Run, arguments: list[str], error: str) -> None:
    ran = check_images(*arguments, env={"CHORES_IMAGES": ""})

    assert (ran.exit_code, ran.stdout) == (2, "")
    assert error in ran.stderr


def test_the_metrics_have_the_number_of_images_and_the_findings_by_code(
    api: Api, check_images: Run, images: ImageRegistries, team: str, host: str, tmp_path: Path
) -> None:
    images.registry(host).push("app:1")
    for number in (1, 2, 3):
        pod(api, team, f"pod-{number}", f"{host}/app:{number}")
    file = tmp_path / "audit.prom"

    ran = check_images("--metrics-file", str(file))

    metrics = file.read_text()
    labels = 'chore="mirror-audit",installation="kube-chores"'
    facts = ran.report["facts"]
    assert f"kube_chores_images{{{labels}}} {float(facts['images'])}\n" in metrics
    assert f"kube_chores_images_checked{{{labels}}} {float(facts['checked'])}\n" in metrics
    assert 'code="image-missing"' in metrics
