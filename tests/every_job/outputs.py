"""The output of runs and of `kubectl get`, the same on every machine and every day."""

import re
from collections.abc import Callable, Mapping

from click.testing import CliRunner, Result

from jobs.__main__ import chores
from tests.apis import Api

TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}


def invoked(*words: str, env: Mapping[str, str]) -> Result:
    """Run a command. An exception is raised: it must not become an output of the docs."""
    done = CliRunner().invoke(chores, words, env=env)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def shown(api: Api, job: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Run a command as its ServiceAccount; return the prompt, the output and the exit code."""
    kubeconfig = api.service_account_kubeconfig("kube-chores", job)
    done = invoked(job, *arguments, env={**(env or {}), "KUBECONFIG": str(kubeconfig)})
    text = re.sub(rf"^{job}: writing to .*\n", "", done.output, flags=re.M)
    text = re.sub(r"\S+\.kubeconfig", "~/.kube/config", text)
    return f"$ chores {job} {' '.join(arguments)}".rstrip() + f"\n{text}(exit code {int(done.exit_code)})"


def listed(api: Api, path: str, command: str, cell: Callable[[str], str] = str) -> str:
    """Return the output of `kubectl get` for a list, without column AGE; `cell` converts each cell."""
    table = api.call("GET", path, headers=TABLE)
    columns = [n for n, column in enumerate(table["columnDefinitions"]) if not column["priority"]][:-1]
    rows = [[table["columnDefinitions"][n]["name"].upper() for n in columns]]
    rows += [[cell("" if row["cells"][n] is None else str(row["cells"][n])) for n in columns] for row in table["rows"]]
    widths = [max(len(row[n]) for row in rows) for n in range(len(columns))]
    lines = ("   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join([f"$ {command}", *lines])
