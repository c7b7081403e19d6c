"""The world of many rules: each has its own source namespace and ten target namespaces.

Two installations of sync-copies work in one cluster: one has many rules, the other has one rule with as many copies.
"""

from __future__ import annotations

from benchmarks.cluster import BenchCluster
from benchmarks.compare import World
from benchmarks.measured import run_process
from benchmarks.worlds.sync_copies import HOME, TOUCHED, chores, prepare_cluster, team
from tests.apis import Object
from tests.canary import canary
from tests.worlds import encoded, namespace_object, rule, secret

NAMESPACES, TARGETS = 1000, 10
MANY, ONE = "many rules", "one rule"
INSTALLED_IN = {MANY: "kube-chores", ONE: "one-rule"}
LABELS = {"bench": "yes"}


def prepare(cluster: BenchCluster, size: int) -> None:
    """Create so many rules, each with a source; and one rule with as many copies. Let both installations copy."""
    prepare_cluster(cluster, NAMESPACES)
    cluster.put([namespace_object(INSTALLED_IN[ONE])])
    cluster.each(lambda number: cluster.put(one_of_many(number)), range(size))
    targets = min(NAMESPACES, size * TARGETS)
    digits = len(str(targets)) - 1
    single = rule(
        "bench", HOME, f"{team(0)[:-digits]}{'?' * digits}", ruleType="secret", selector={"matchLabels": LABELS}
    )
    single["metadata"]["namespace"] = INSTALLED_IN[ONE]
    cluster.put([source(HOME, f"single-{number}") for number in range(size * TARGETS // targets)])
    cluster.put([single])
    for program in PROGRAMS:
        done = run_process(PROGRAMS[program](cluster), {"KUBECONFIG": str(cluster.plane.kubeconfig)})
        assert done.exit_code == 0, done.stderr


def one_of_many(number: int) -> list[Object]:
    """Return a Secret in one of the namespaces, and a rule that copies it to ten others."""
    targets = [team((number + 1 + each) % NAMESPACES) for each in range(TARGETS)]
    selector = {"matchLabels": LABELS}
    return [
        source(team(number), f"source-{number}"),
        rule(f"rule-{number}", team(number), targets, ruleType="secret", selector=selector),
    ]


def source(namespace: str, name: str) -> Object:
    """Return a Secret that rules select."""
    return secret(namespace, name, labels=LABELS, data={"key": encoded(canary())})


def nothing_to_write(cluster: BenchCluster, program: str, size: int) -> int:
    """Change nothing."""
    return 0


PROGRAMS = {name: lambda cluster, home=home: chores("sync-copies", "-n", home) for name, home in INSTALLED_IN.items()}
WORLD = World(
    name="rules",
    unit="rules",
    sizes=(1, 10, 100, 1_000),
    prepare=prepare,
    scenarios={"converged": nothing_to_write},
    programs=PROGRAMS,
    touched=(*TOUCHED, "/apis/kubechores.dev/v1/namespaces/kube-chores/copyrators/rule-0"),
    pairs=((MANY, ONE),),
)
