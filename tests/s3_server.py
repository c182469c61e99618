"""Run a real S3 server for tests: Ceph's gateway with one monitor and one disk, on loopback.

It needs the packages radosgw, ceph-mon, ceph-osd and ceph-common (Debian's names). If they are missing, tests that need
the server are skipped with this reason.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAMS = ("radosgw", "radosgw-admin", "ceph", "ceph-mon", "ceph-osd", "ceph-authtool", "monmaptool")
ACCESS_KEY, SECRET_KEY = "testaccess", "testsecret"
START_S = 60.0


def missing() -> str | None:
    """Return the reason why the server cannot run here, or None."""
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    return f"Ceph is incomplete: {', '.join(absent)} not installed" if absent else None


@contextmanager
def ceph(folder: Path) -> Iterator[dict[str, str]]:
    """Run a server with its data in `folder`; yield the environment variables that configure S3 clients for it."""
    daemons: list[subprocess.Popen[bytes]] = []
    gateway, *monitor = free_ports(3)
    try:
        start(folder, daemons, gateway, monitor)
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{gateway}",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        }
    finally:
        for daemon in reversed(daemons):
            daemon.kill()  # its data is discarded
            daemon.wait()


def start(folder: Path, daemons: list[subprocess.Popen[bytes]], gateway: int, monitor: list[int]) -> None:
    for name in ("mon", "osd", "run", "log"):
        (folder / name).mkdir()
    config = folder / "ceph.conf"
    identity, disk = str(uuid.uuid4()), str(uuid.uuid4())
    address = f"[v2:127.0.0.1:{monitor[0]},v1:127.0.0.1:{monitor[1]}]"
    config.write_text(CONFIG.format(folder=folder, identity=identity, address=address, gateway=gateway))

    def run(*command: str) -> bool:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "CEPH_CONF": str(config)},
            timeout=START_S,
            check=False,
            capture_output=True,
        )
        return done.returncode == 0

    def run_or_raise(*command: str) -> None:
        if not run(*command):
            raise RuntimeError(f"{' '.join(command)} failed")

    def daemon(*command: str) -> None:
        daemons.append(
            subprocess.Popen(
                [*command, "-c", str(config), "-f"],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    capabilities = ("--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *")
    run_or_raise("ceph-authtool", "-C", "mon.keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    run_or_raise("ceph-authtool", "-C", "admin.keyring", "--gen-key", "-n", "client.admin", *capabilities)
    run_or_raise("ceph-authtool", "mon.keyring", "--import-keyring", "admin.keyring")
    run_or_raise("monmaptool", "--create", "--clobber", "--fsid", identity, "--addv", "a", address, "monmap")
    run_or_raise("ceph-mon", "-i", "a", "--mkfs", "--monmap", "monmap", "--keyring", "mon.keyring")
    daemon("ceph-mon", "-i", "a", "--keyring", f"{folder}/mon/keyring")
    wait_until(lambda: run("ceph", "--connect-timeout", "5", "-s"))
    run_or_raise("ceph", "osd", "new", disk)
    daemon_capabilities = ("mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *")
    run_or_raise("ceph", "auth", "get-or-create", "osd.0", *daemon_capabilities, "-o", "osd/keyring")
    run_or_raise("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk, "--keyring", "osd/keyring")
    daemon("ceph-osd", "-i", "0", "--keyring", f"{folder}/osd/keyring")
    run_or_raise("ceph", "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=here")
    wait_until(lambda: run("sh", "-c", "ceph osd stat | grep -q '1 up'"))
    daemon("radosgw", "-n", "client.admin")
    keys = (f"--access-key={ACCESS_KEY}", f"--secret-key={SECRET_KEY}")
    run_or_raise("radosgw-admin", "user", "create", "--uid=test", "--display-name=test", *keys)
    wait_until(lambda: is_answering(gateway))


def wait_until(is_ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not is_ready():
        if time.monotonic() > deadline:
            raise RuntimeError("Ceph did not start in time")
        time.sleep(0.3)


def is_answering(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def free_ports(count: int) -> list[int]:
    """Return free ports of loopback, all reserved at the same time so that no two are the same."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [reserved.getsockname()[1] for reserved in sockets]
    for reserved in sockets:
        reserved.close()
    return ports


CONFIG = """
[global]
fsid = {identity}
keyring = {folder}/admin.keyring
mon_host = {address}
mon_initial_members = a
auth_allow_insecure_global_id_reclaim = false
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_ipv6 = false
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
run_dir = {folder}/run
admin_socket = {folder}/run/$name.asok
log_file = {folder}/log/$name.log
pid_file = {folder}/run/$name.pid
[mon.a]
mon_data = {folder}/mon
mon_data_avail_warn = 1
mon_data_avail_crit = 1
[osd.0]
osd_data = {folder}/osd
osd_class_update_on_start = false
osd_crush_update_on_start = false
osd_objectstore = bluestore
bluestore_block_size = 4294967296
bluestore_block_create = true
osd_memory_target = 1073741824
[client.admin]
keyring = {folder}/admin.keyring
rgw_frontends = beast endpoint=127.0.0.1:{gateway}
rgw_dns_name = localhost
"""
