"""The token of a ServiceAccount becomes invalid during a run: the server answers 401 from then on."""

from pathlib import Path

import pytest
import yaml

from tests.apis import Object, wait_for
from tests.travel.conftest import before_write
from tests.travel.town import WRITING, Town
from tests.worlds import secret

pytestmark = pytest.mark.travel
WRITES_BEFORE = 20  # more than are in flight
UNAUTHORIZED = (
    "Unauthorized: the API server does not accept these credentials; "
    "check that the token or certificate is of this cluster and has not expired"
)


class Bound:
    """A token of the account of a job that is valid while a Secret exists. The server accepts it 10 s longer."""

    def __init__(self, town: Town, job: str) -> None:
        self._api = town.api
        self._secret = self._api.create(secret("kube-chores", f"binding-{town.token}", labels={}))
        reference = {"kind": "Secret", "apiVersion": "v1", "name": self._secret["metadata"]["name"]}
        kind = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
        path = f"/api/v1/namespaces/kube-chores/serviceaccounts/{job}/token"
        answer = self._api.call("POST", path, {**kind, "spec": {"boundObjectRef": reference}})
        self.text = str(answer["status"]["token"])

    def end(self) -> None:
        self._api.delete(self._secret)
        wait_for(lambda: self._api.request("GET", "/api", token=self.text)[0] == 401, "the token to be refused")


def with_user(account: Path, **user: str) -> Path:
    """Write this user into a kubeconfig, in place of its own."""
    config: Object = yaml.safe_load(account.read_text())
    config["users"][0]["user"] = user
    account.write_text(yaml.safe_dump(config))
    return account


@pytest.mark.parametrize("job", WRITING)
def test_the_next_run_writes_what_a_run_whose_token_expired_did_not(town: Town, job: str) -> None:
    town.prepare(job)
    token = Bound(town, job)
    account = with_user(town.account(job), token=token.text)
    town.api.mark()
    with before_write(WRITES_BEFORE, token.end):
        ran = town.run(job, account=account)

    assert ran.exit_code == 2
    assert UNAUTHORIZED in ran.stdout + ran.stderr
    assert token.text not in ran.stdout + ran.stderr
    first = town.written(job)
    again = town.run(job, account=account)
    assert (again.exit_code, UNAUTHORIZED in again.stdout + again.stderr) == (2, True)
    assert town.written(job) == first
    assert town.run(job).exit_code == 0
    assert 0 < len(first) < len(town.once(job))
    assert town.written(job) == town.once(job)


@pytest.mark.parametrize("job", WRITING)
def test_a_run_uses_the_token_that_replaced_the_file(
    town: Town, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kubelet does, and programs that renew tokens of a laptop: the first token is valid for a while."""
    monkeypatch.setattr("jobs.kit.api.endpoint._FRESH_SECONDS", -1.0)
    town.prepare(job)
    token, file = Bound(town, job), tmp_path / "token"
    file.write_text(token.text)
    account = with_user(town.account(job), tokenFile=str(file))
    second = town.api.service_account_token("kube-chores", job)

    town.api.mark()
    with before_write(0, lambda: file.write_text(second)), before_write(WRITES_BEFORE, token.end):
        ran = town.run(job, account=account)

    assert ran.exit_code == 0, ran
    assert town.written(job) == town.once(job)
