# SPDX-License-Identifier: Apache-2.0
"""Render the page that a person finds at ``/``."""

from __future__ import annotations

from collections.abc import Iterable

from slurmscope.outputs.http.response import Response

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})

STYLE = "body{font-family:sans-serif;margin:3em auto;max-width:40em;padding:0 1em}dt{margin-top:1em}"
# Only this very style may run, no script at all; a test holds the digest to the style.
POLICY = (
    "default-src 'none'; style-src 'sha256-Tc8eduw7TFBLEwgC0UByI5MyRo3P2YPTR9bR0s0Kfb4='; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def landing_response(name: str, version: str, links: Iterable[tuple[str, str]]) -> Response:
    """Answer with the landing page; links are pairs of a path and what is found there."""
    headers = (
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Security-Policy", POLICY),
        ("X-Content-Type-Options", "nosniff"),
    )
    return Response(headers=headers, body=render_landing(name, version, links).encode("utf-8", "replace"))


def render_landing(name: str, version: str, links: Iterable[tuple[str, str]]) -> str:
    """Write the page; every text in it is escaped."""
    title = escape(f"{name} {version}")
    items = "".join(
        f'<dt><a href="{escape(path)}">{escape(path)}</a></dt><dd>{escape(text)}</dd>\n' for path, text in links
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>\n'
        f"<style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n<dl>\n{items}</dl>\n</body>\n</html>\n"
    )


def escape(text: str) -> str:
    """Escape a text for HTML; the module ``html`` would load every entity name there is."""
    return text.translate(_ESCAPES)
