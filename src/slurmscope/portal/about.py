# SPDX-License-Identifier: Apache-2.0
"""Show the help page, and respond to health checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from slurmscope.portal.context import Context

Document = Mapping[str, Any]

_MAX_DEPTH = 3


class ApiField(NamedTuple):
    """One parameter of a request, or one field of a response."""

    name: str
    type: str
    description: str
    is_required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of the API."""

    method: str
    path: str
    description: str
    parameters: tuple[ApiField, ...]
    fields: tuple[ApiField, ...]

    @property
    def anchor(self) -> str:
        """Return the name of the operation within the page."""
        return self.path.strip("/").replace("/", "-").replace("{", "").replace("}", "")


def list_operations(document: Document) -> tuple[Operation, ...]:
    """Return every operation of the document, in its order."""
    return tuple(
        _make_operation(document, method, path, operation)
        for path, methods in document.get("paths", {}).items()
        for method, operation in methods.items()
    )


def list_errors(document: Document) -> dict[str, str]:
    """Return what operations respond instead of a result, by status."""
    errors: dict[str, str] = {}
    for methods in document.get("paths", {}).values():
        for operation in methods.values():
            found = {code: each["description"] for code, each in operation["responses"].items() if code >= "300"}
            errors = found | errors
    return dict(sorted(errors.items()))


def _make_operation(document: Document, method: str, path: str, operation: Document) -> Operation:
    schema = operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema", {})
    return Operation(
        method=method.upper(),
        path=path,
        description=operation.get("description") or operation.get("summary", ""),
        parameters=tuple(_make_parameter(document, each) for each in operation.get("parameters", ())),
        fields=tuple(_list_fields(document, schema)),
    )


def _make_parameter(document: Document, parameter: Document) -> ApiField:
    schema = parameter.get("schema", {})
    described = [parameter.get("description") or ""]
    if (default := schema.get("default")) not in {None, ""}:
        described.append(f"Default: {default}.")
    text = " ".join(part for part in described if part)
    return ApiField(parameter["name"], _name_type(document, schema), text, bool(parameter.get("required")))


def _list_fields(document: Document, schema: Document, prefix: str = "", depth: int = 0) -> Iterator[ApiField]:
    """Yield the fields of a response; those of objects within it follow with the name of their parent."""
    schema = _resolve(document, schema)
    for name, each in schema.get("properties", {}).items():
        found = _resolve(document, each)
        yield ApiField(f"{prefix}{name}", _name_type(document, each), found.get("description") or "", True)
        inner = _resolve(document, found.get("items", found))
        if depth < _MAX_DEPTH and "properties" in inner:
            mark = "[]" if "items" in found else ""
            yield from _list_fields(document, inner, f"{prefix}{name}{mark}.", depth + 1)


def _name_type(document: Document, schema: Document) -> str:
    schema = _resolve(document, schema)
    if choices := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(_name_type(document, choice) for choice in choices))
    if values := schema.get("enum"):
        return ", ".join(map(str, values))
    if schema.get("type") == "array":
        return f"list of {_name_type(document, schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _resolve(document: Document, schema: Document) -> Document:
    """Follow a reference within the document."""
    reference = schema.get("$ref")
    if reference is None:
        return schema
    found: Document = document["components"]["schemas"][reference.rsplit("/", 1)[-1]]
    return found


router = APIRouter(include_in_schema=False)


@router.get("/help")
def show_help(context: Context) -> Response:
    """Explain the terms on the pages, access rules, and the API."""
    return context.page("help.html")


@router.get("/api")
def show_api(context: Context) -> Response:
    """Show the documentation of the API; the usual pages for this would load scripts from other hosts."""
    document = context.request.app.openapi()
    return context.page(
        "api.html", operations=list_operations(document), errors=list_errors(document), portal_url=context.public_url
    )


@router.get("/healthz")
async def check_health() -> Response:
    """Confirm that the portal is up; no sign-in is needed."""
    return PlainTextResponse("ok\n")
