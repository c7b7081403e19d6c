"""Which images have a finding, by the answers of registries: logins, limits, and what a run does not request."""

import json
from collections.abc import Mapping
from datetime import datetime, timezone

import pytest

from jobs.core.mirror_audit import image_checks
from jobs.core.mirror_audit.image_checks import check_images
from jobs.core.mirror_audit.image_uses import CronJobObject, Images, PodObject
from jobs.core.mirror_audit.observed import Account, Document, Observed, PullSecret, Settings
from jobs.core.mirror_audit.pull_secrets import Entry
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Dependency, Finding, Login, ManifestRequest, ObjectKey
from jobs.kit.values.reads import Download, decode
from jobs.kit.values.resources import SECRETS, SERVICE_ACCOUNTS
from tests.image_registries import INDEX, MANIFEST, digest

HOST = "r.example.com"
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
OK, UNAUTHORIZED, MISSING, LIMITED = (Download(status=each) for each in (200, 401, 404, 429))
REGISTRY = f"registry/{HOST}"
Answers = Mapping[tuple[str, str], Download]  # by the reference, and the password of a login


class World:
    """Pods and their pull secrets, and what a registry answers; `asked` are the requests that it got."""

    def __init__(self, answers: Answers, host: str = HOST) -> None:
        self.answers, self.host, self.images = answers, host, Images()
        self.documents: dict[ObjectKey, Document] = {}
        self.asked: list[list[tuple[str, str]]] = []  # of each plan
        self.read: set[ObjectKey] = set()
        self.exit_codes: set[int] = set()  # of the findings

    def pod(self, tag: str, *passwords: str, namespace: str = "team", running: int = 0) -> None:
        """Add a pod that runs an image, with a Secret for each password."""
        names = [each or "empty" for each in passwords]
        document = {
            "metadata": {"name": f"pod-{tag}", "namespace": namespace},
            "spec": {
                "containers": [{"name": "main", "image": f"{self.host}/app:{tag}"}],
                "imagePullSecrets": [{"name": each} for each in names],
            },
            "status": {"containerStatuses": [{"name": "main", "imageID": f"x@{digest(running)}"}]} if running else {},
        }
        self.images.add_pod(decode(json.dumps(document).encode(), PodObject))
        for name, password in zip(names, passwords, strict=True):
            entries = (Entry(self.host, "", Login("robot", password)),) if password else ()
            secret = PullSecret("1", frozenset(), "", entries=entries)
            self.documents[ObjectKey(SECRETS.kind, name, namespace)] = secret

    def cron_job(self, tag: str, account: Document, namespace: str = "team") -> None:
        """Add a CronJob whose ServiceAccount is this document."""
        template = {"spec": {"containers": [{"name": "main", "image": f"{self.host}/app:{tag}"}]}}
        document = {
            "metadata": {"name": f"job-{tag}", "namespace": namespace},
            "spec": {"jobTemplate": {"spec": {"template": template}}},
        }
        self.images.add_cron_job(decode(json.dumps(document).encode(), CronJobObject))
        self.documents[ObjectKey(SERVICE_ACCOUNTS.kind, "default", namespace)] = account

    def findings(self) -> list[tuple[str, str]]:
        """Plan until nothing is needed; return the codes and objects of the findings, without namespaces."""
        settings = Settings("mirrors", "", images=50)
        downloads: dict[str, Download] = {}
        documents: dict[ObjectKey, Document] = {}
        while True:
            parts = check_images(
                (), Observed((), images=self.images, downloads=downloads, documents=documents), settings, NOW
            ).parts
            requests = [each for each in parts if isinstance(each, ManifestRequest)]
            keys = [each.key for each in parts if isinstance(each, Dependency)]
            self.read.update(keys)
            documents |= {key: self.documents[key] for key in keys}
            if not requests and not keys:
                found = [each for each in parts if isinstance(each, Finding)]
                self.exit_codes = {each.exit_code for each in found}
                return [(each.code, f"{each.object.kind}/{each.object.name}".lower()) for each in found]
            if requests:
                self.asked.append([])
            for each in requests:
                downloads[each.key] = self._answer(each)

    def _answer(self, request: ManifestRequest) -> Download:
        answer = UNAUTHORIZED
        for password in [each.password for each in request.logins] or [""]:
            self.asked[-1].append((request.reference, password))
            answer = self.answers.get((request.reference, password), MISSING)
            if answer.status != 401:
                break
        return answer


def image(tag: str) -> str:
    return f"image/{HOST}/app:{tag}"


def test_an_image_that_a_registry_hides_without_a_login_is_not_missing() -> None:
    moved = Download(status=200, digest=digest(2), media_type=INDEX)
    world = World({("1", "right"): OK, ("2", "right"): moved, (digest(1), "right"): MISSING})
    world.pod("1", "right")
    world.pod("2", "right", running=1)
    world.pod("3", "right")
    world.pod("4", "")
    world.pod("4", namespace="other")
    world.cron_job("6", Account(("right",)))
    world.cron_job("7", ApiError(403, "forbidden"), "other")

    assert sorted(world.findings()) == [
        *(("image-missing", image(each)) for each in "3467"),
        ("image-moved", image("2")),
    ]
    assert sorted(world.asked[0]) == [(each, "") for each in "123467"]
    assert sorted(world.asked[1]) == [(each, "right") for each in "1236"]


def test_an_image_for_which_one_of_several_logins_has_access_is_not_missing() -> None:
    moved = Download(status=200, digest=digest(2), media_type=MANIFEST)
    world = World({("1", ""): UNAUTHORIZED, ("1", "right"): OK, ("2", "right"): OK, ("3", "right"): moved})
    tags = ("1", "2", "3")
    for tag in tags:
        world.pod(tag, "right", running=1)
        world.pod(tag, "wrong", namespace="other")

    assert world.findings() == [("image-moved", image("3"))]
    assert sorted(world.asked[1]) == [(tag, each) for tag in tags for each in ("right", "wrong")]


def test_a_registry_that_limits_requests_gets_none_in_later_plans() -> None:
    moved = Download(status=200, digest=digest(2), media_type=INDEX)
    world = World({("1", ""): moved, ("2", ""): UNAUTHORIZED, ("3", ""): LIMITED})
    world.pod("1", running=1)
    world.pod("2", "right")
    world.pod("3")

    assert world.findings() == [("image-rate-limited", REGISTRY)]
    assert len(world.asked) == 1


def test_a_registry_that_fails_gets_no_requests_in_later_plans() -> None:
    world = World({("1", ""): UNAUTHORIZED, ("2", ""): Download(error="the connection was closed")})
    world.pod("1", "right")
    world.pod("2")

    assert world.findings() == [("image-unreachable", REGISTRY)]
    assert len(world.asked) == 1


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com", "image-not-checked"),
        ("123456789012.dkr-ecr-fips.us-east-1.on.aws", "image-not-checked"),
        ("team.azurecr.io", "image-not-checked"),
        ("gcr.io", "image-not-checked"),
        ("eu.gcr.io", "image-not-checked"),
        ("europe-west1-docker.pkg.dev", "image-not-checked"),
        ("notgcr.io", "image-no-access"),
        ("azurecr.io.example.com", "image-no-access"),
    ],
)
def test_nodes_may_have_a_login_of_their_own_for_a_registry_of_their_cloud(host: str, code: str) -> None:
    world = World({("1", ""): UNAUTHORIZED}, host)
    world.pod("1")

    assert world.findings() == [(code, f"image/{host}/app:1")]


def test_a_run_reads_at_most_so_many_pull_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_checks, "MOST_SECRETS", 3)
    tags = [str(number) for number in range(5)]
    world = World({(tag, password): UNAUTHORIZED for tag in tags for password in ("", tag)})
    for tag in tags:
        world.pod(tag, tag)

    codes = [code for code, _ in world.findings()]

    assert (codes.count("image-no-access"), codes.count("image-not-checked")) == (3, 2)
    assert len(world.read) == 3


@pytest.mark.parametrize(("status", "exit_codes"), [(500, {0, 1}), (403, {0}), (404, {0})])
def test_a_pull_secret_that_cannot_be_read_fails_the_run_unless_the_permission_is_missing(
    status: int, exit_codes: set[int]
) -> None:
    world = World({("1", ""): UNAUTHORIZED})
    world.pod("1", "right")
    world.documents = dict.fromkeys(world.documents, ApiError(status, "failed"))

    codes = [code for code, _ in world.findings()]

    assert codes[0] == ("image-no-access" if status == 404 else "image-not-checked")
    assert world.exit_codes == exit_codes
