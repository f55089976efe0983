"""Code shared by measure-containers and measure-pods: a registry, and running programs."""

import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def require(*programs):
    """Ends the script with one line if it cannot run on this machine."""
    name = os.path.basename(sys.argv[0])
    if os.geteuid() != 0:
        sys.exit(f"{name}: needs root")
    for needed in programs:
        if not shutil.which(needed):
            sys.exit(f"{name}: {needed} is not installed")


def run(*command, **options):
    options = {"check": True, "stdin": subprocess.DEVNULL, "capture_output": True} | options
    try:
        return subprocess.run([str(word) for word in command], **options)
    except subprocess.CalledProcessError as error:
        text = (error.stderr or b"").decode(errors="replace").strip()
        sys.exit(f"{os.path.basename(sys.argv[0])}: {' '.join(map(str, command))}: {text}")


def wait_for(what, holds):
    begun = time.monotonic()
    while True:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            if holds():
                return
        if time.monotonic() - begun > 60:
            sys.exit(f"{os.path.basename(sys.argv[0])}: {what} does not start")
        time.sleep(0.05)


class Registry:
    """Debian's registry, with one repository."""

    def __init__(self, place, address, name, within=()):
        self.address, self.name = address, name
        config = place / "registry.yml"
        config.write_text(
            "version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\n"
            f"storage: {{filesystem: {{rootdirectory: {place}/registry}}}}\n"
            f"http: {{addr: '{address}'}}\n"
        )
        log = open(place / "registry.log", "wb")
        command = [*within, "docker-registry", "serve", config]
        self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_for("the registry", lambda: self.request("GET", "/v2/", b"", {}))

    def request(self, method, path, body, headers):
        connection = http.client.HTTPConnection(self.address, timeout=60)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status >= 400:
            raise OSError(f"{method} {path}: {answer.status}")
        return answer

    def put_blob(self, kind, content):
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        begun = self.request("POST", f"/v2/{self.name}/blobs/uploads/", b"", {})
        path = begun.getheader("Location").split(self.address, 1)[1] + f"&digest={digest}"
        self.request("PUT", path, content, {"Content-Type": "application/octet-stream"})
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    def put_manifest(self, tag, manifest):
        text = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST} | manifest).encode()
        path = f"/v2/{self.name}/manifests/{tag}"
        self.request("PUT", path, text, {"Content-Type": MANIFEST})


def clean(place):
    """Unmounts everything below a directory, and removes it."""
    table = pathlib.Path("/proc/self/mounts").read_text().splitlines()
    points = [line.split()[1] for line in table if line.split()[1].startswith(f"{place}/")]
    for point in reversed(points):
        subprocess.run(["umount", "-l", point], capture_output=True)
    shutil.rmtree(place, ignore_errors=True)
