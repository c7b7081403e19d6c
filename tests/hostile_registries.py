"""Answers of registries and token servers of tenants that are not those of registries, and what a run reports."""

from collections.abc import Callable

from tests import rates
from tests.rates import Answer

HOSTILE: dict[str, tuple[Callable[[str], Answer], str]] = {
    "not a registry": (lambda _: rates.status(200), "the answer is not that of a registry"),
    "an error": (lambda _: rates.status(500), "HTTP 500"),
    "redirect to http": (lambda _: rates.redirect("http://r.example.com/"), "redirected to a URL that is not https"),
    "redirect with a login": (lambda _: rates.redirect("https://a:b@r.example.com/"), "a URL that is not https"),
    "redirect that is no URL": (lambda _: rates.redirect("https://[/"), "redirected to a URL that is not valid"),
    "endless redirects": (lambda host: rates.redirect(f"https://{host}/again"), "more than 5 redirects"),
    "tokens over http": (
        lambda _: rates.status(401, WWW_Authenticate='Bearer realm="http://auth.example.com/token"'),
        "it names a token server that is not an https URL",
    ),
    "tokens of a file": (
        lambda _: rates.status(401, WWW_Authenticate='Bearer realm="file:///etc/passwd"'),
        "it names a token server that is not an https URL",
    ),
    "a token that is too long": (lambda host: _tokens(f"https://{host}/huge"), "the answer has more than 48 KiB"),
    "a token of two lines": (lambda host: _tokens(f"https://{host}/lines"), "the answer is not a token"),
    "a token server without the page": (lambda host: _tokens(f"https://{host}/none"), "its token server: HTTP 404"),
    "a connection that ends": (lambda _: _close, "the connection was closed without an answer"),
    "not HTTP": (lambda _: _garbage, "the answer is not HTTP"),
}


def _tokens(realm: str) -> Answer:
    answers = {"/huge": b'{"token": "' + 50_000 * b"x" + b'"}', "/lines": b'{"token": "a\\r\\nX-Other: b"}'}

    def answer(handler: rates.Handler) -> None:
        if handler.command == "HEAD":
            return handler.send(401, {"WWW-Authenticate": f'Bearer realm="{realm}",service="x"'}, b"")
        body = answers.get(handler.path.partition("?")[0], b"")
        return handler.send(200 if body else 404, {}, body)

    return answer


def _close(handler: rates.Handler) -> None:
    handler.close_connection = True


def _garbage(handler: rates.Handler) -> None:
    handler.wfile.write(b"\x00\xff hello\r\n\r\n")
    handler.close_connection = True
