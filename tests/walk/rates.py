"""The fields of ExchangeRates."""

from tests.walk.walk import Field, Object

USD: Object = {"currency": "USD"}
CHF: Object = {"currency": "CHF", "provider": "ecb"}  # it jumps by 30 % after the first run, and no other confirms it
EUR = "Default is EUR."
LAST = "The last valid rate is that of the status."

FIELDS = [
    Field(
        "currency",
        ["USD", "GBP", "XXX"],
        {},
        ["usd", "EURO", "EUR"],
        differs={"change to value 3": "no provider has a valid rate. The last one stays"},
    ),
    Field("base", ["EUR", "PLN"], USD, ["usd", "USD"], nothing={"set": EUR, "remove": EUR}),
    Field("configMapName", ["dollar", "other"], USD, ["A", "a_b"]),
    Field("provider", ["open-er-api", "frankfurter", "ecb"], USD, ["none"]),
    Field(
        "maxChange",
        [50, 60],
        CHF,
        [0, 1000001],
        nothing=dict.fromkeys(("remove", "change to value 2"), LAST),
        stays={"set": LAST},
        differs={"remove": LAST},
    ),
    Field(
        "maxChange",
        [10, 50],
        CHF,
        about="that blocks",
        nothing=dict.fromkeys(("set", "remove"), "the rate changed by more than `maxChange`"),
        stays={"change to value 2": LAST},
    ),
]
