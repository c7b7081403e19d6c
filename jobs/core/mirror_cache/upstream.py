"""Find out whether the upstream refuses the requests of the registry, by a request for a blob that does not exist.

The registry sends it to the upstream with its login, so no other process needs the login. Requests of clients do not
change the answer. It is not a pull, which upstreams count: https://docs.docker.com/docker-hub/usage/pulls/
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from collections.abc import Mapping
from http import HTTPStatus

PROBE_PATH = f"/v2/kube-chores/probe/blobs/sha256:{'0' * 64}"
_ANSWER_SECONDS = 10.0
_MOST_ANSWER_BYTES = 1 << 16
# With one of these, the upstream has accepted the login, if the registry sent one.
_ACCEPTED = frozenset({HTTPStatus.OK, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
_OF_STATUS: Mapping[int, str] = {HTTPStatus.UNAUTHORIZED: "unauthorized", HTTPStatus.TOO_MANY_REQUESTS: "rate"}
# A registry answers with 500 if the token server of its upstream refuses it. A token server refuses only clients that
# it cannot authenticate: https://distribution.github.io/distribution/spec/auth/token/#requesting-a-token
_OF_TOKENS = {"unauthorized": "login", "denied": "login", "toomanyrequests": "rate"}
_DETAIL = re.compile(rf'Head "[^"]*": ({"|".join(_OF_TOKENS)}): ')


def refusal(port: int) -> str | None:
    """Return why the upstream refuses requests: "login", "unauthorized" or "rate".

    Return nothing if it refuses none, and None if the registry or its upstream failed in another way.

    Raises:
        ConnectionError: the registry does not respond yet.
    """
    connection = http.client.HTTPConnection("localhost", port, timeout=_ANSWER_SECONDS)
    with contextlib.closing(connection):
        try:
            connection.request("GET", PROBE_PATH, headers={"User-Agent": "mirror-cache"})
            answer = connection.getresponse()
            if answer.status == HTTPStatus.INTERNAL_SERVER_ERROR:
                return _of_token_server(answer.read(_MOST_ANSWER_BYTES))
        except ConnectionError:
            raise
        except (OSError, http.client.HTTPException):
            return None
    return "" if answer.status in _ACCEPTED else _OF_STATUS.get(answer.status)


def _of_token_server(body: bytes) -> str | None:
    """Return the refusal in the body of an error, None if there is none.

    https://distribution.github.io/distribution/spec/api/#errors
    """
    try:
        found = _DETAIL.match(json.loads(body)["errors"][0]["detail"])
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    return _OF_TOKENS[found[1]] if found else None
