"""Asks a server for everything its description allows, and much that it does not.

    schemathesis.py RUNNER ADDRESS TOKEN

RUNNER is the program of the schemathesis package. No answer may be a server error, have a status, a content type or a
body that the description does not know, or let in a caller without a token.
"""

import json
import subprocess
import sys
import tempfile
import urllib.request

runner, address, token = sys.argv[1:4]
request = urllib.request.Request(
    f"{address}/api/v1/openapi.json", headers={"Authorization": f"Bearer {token}"}
)
with urllib.request.urlopen(request) as answer:
    document = json.load(answer)
# A stream never ends: it has tests of its own.
del document["paths"]["/api/v1/events"]
checks = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "ignored_auth",
    "unsupported_method",
]
with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/openapi.json"
    with open(path, "w") as file:
        json.dump(document, file)
    command = [runner, "run", path, "--url", address, "--header", f"Authorization: Bearer {token}"]
    command += ["--checks", ",".join(checks), "--phases", "examples,coverage,fuzzing", "--max-examples", "3"]
    command += ["--seed", "1", "--workers", "1", "--continue-on-failure", "--suppress-health-check", "all"]
    sys.exit(subprocess.run(command, cwd=folder).returncode)
