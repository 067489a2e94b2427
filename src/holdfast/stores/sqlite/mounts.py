"""On which kind of disk a file is: SQLite's log is shared through memory, so one machine alone may have it open."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
"""Linux's list of all that is mounted, as this process sees it."""
_OF_NETWORKS: Final = frozenset(
    """
    afs beegfs ceph cifs coda davfs glusterfs gpfs lustre ncpfs nfs nfs4 orangefs pvfs2 smb3 smbfs
    fuse.ceph fuse.ceph-fuse fuse.curlftpfs fuse.davfs fuse.gcsfuse fuse.glusterfs fuse.goofys fuse.juicefs fuse.mfs
    fuse.nfs fuse.rclone fuse.s3fs fuse.smbnetfs fuse.sshfs
    """.split()
)


def network_disk(folder: str, mounts: Path | None = None) -> str:
    """The type of the network file system that a folder is on, such as nfs4; empty where it is on none, or none knows.

    It goes by the number of the device, which neither links nor mounts on top of each other can confuse.
    """
    try:
        device = os.stat(folder).st_dev
        lines = (mounts or MOUNTS).read_text(errors="replace").splitlines()
    except OSError:  # no Linux, or no /proc
        return ""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        # 36 35 98:0 /mnt1 /mnt2 rw,noatime shared:1 - nfs4 server:/path rw
        place, _, rest = line.partition(" - ")
        kind = rest.partition(" ")[0]
        if kind in _OF_NETWORKS and place.split()[2:3] == [number]:
            return kind
    return ""
