# SPDX-License-Identifier: Apache-2.0
"""Make the files of a Prometheus that requires a client certificate and a password."""

from __future__ import annotations

import json
import ssl
import urllib.request
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

import bcrypt

from tests.fakes.certificates import Identity, make_authority, make_identity


@dataclass(frozen=True)
class SecuredServer:
    """Hold the files of a server that requires a client certificate and a password."""

    authority: Identity
    client: Identity
    config_file: Path

    @property
    def opener(self) -> urllib.request.OpenerDirector:
        """Return how the test itself reaches the server."""
        context = ssl.create_default_context(cafile=self.authority.cert)
        context.load_cert_chain(self.client.cert, self.client.key)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        opener.addheaders = [("Authorization", basic_auth("secret"))]
        return opener


def basic_auth(password: str) -> str:
    """Return the header of the user agents."""
    return f"Basic {b64encode(f'agents:{password}'.encode()).decode()}"


def secure(folder: Path) -> SecuredServer:
    """Write the web configuration and its certificates into a folder."""
    authority = make_authority(folder, "authority")
    make_identity(folder, "server", authority, "IP:127.0.0.1")
    client = make_identity(folder, "client", authority, "DNS:n1", usage="clientAuth")
    tls = {
        "cert_file": "server.pem",
        "key_file": "server.key",
        "client_auth_type": "RequireAndVerifyClientCert",
        "client_ca_file": "authority.pem",
    }
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    config_file = folder / "web.yml"
    config_file.write_text(json.dumps({"tls_server_config": tls, "basic_auth_users": {"agents": hashed}}))
    return SecuredServer(authority, client, config_file)
