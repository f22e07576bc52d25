"""The filter of system calls for confined commands, as BPF code.

Landlock restricts files; the filter refuses the operations that it does not know: sockets of every kind, file modes and
times, the clock, locks, signals, other processes. ``confine.py`` loads this module without the package.
"""

from __future__ import annotations

import os
import struct

ANY_NAMESPACE = 0x7E020000

# name -> number on (x86_64, aarch64); -1 where the processor has none.
CALLS = {
    # sockets of every family (stream pairs are left: SOCKETPAIR), and io_uring, which could create one unseen
    "socket": (41, 198), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # operations that Landlock does not cover: modes, owners, times, attributes
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, -1), "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54),
    "utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "file_setattr": (469, 469), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "open_by_handle_at": (304, 265), "fanotify_init": (300, 262), "flock": (73, 32),
    # the machine: clock, names, mounts, modules, power
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "reboot": (169, 142), "syslog": (103, 116),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "swapon": (167, 224),
    "swapoff": (168, 225), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "acct": (163, 89), "sync": (162, 81), "syncfs": (306, 267), "vhangup": (153, 58),
    # other processes, and places shared with them
    "ptrace": (101, 117), "process_vm_writev": (311, 271), "process_vm_readv": (310, 270), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # leaving the session
    "setsid": (112, 157),
    # ways around a filter
    "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "seccomp": (317, 277),
}  # fmt: skip
# Signals, for kernels where Landlock does not restrict them.
WITHOUT_SCOPES = {
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "pidfd_send_signal": (424, 424),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
}  # fmt: skip
# Emptying a file by its name, for kernels where Landlock does not restrict it.
WITHOUT_TRUNCATE = {"truncate": (76, 45)}
IOCTL, FCNTL, PRLIMIT, CLONE, SOCKETPAIR = (16, 29), (72, 25), (302, 261), (56, 220), (53, 199)
CLONE3, OPENAT2, OPEN, OPENAT = (435, 435), (437, 437), (2, -1), (257, 56)
O_TRUNC = 0x200
# Flags and attributes of files, injecting terminal input, taking over a controlling terminal.
FORBIDDEN_IOCTLS = (0x40086602, 0x40046602, 0x401C5820, 0x5412, 0x541C, 0x540E, 0x40049409, 0x4020940D, 0x5423)
# Locks and leases that make other programs wait, and signals by way of a descriptor.
FORBIDDEN_FCNTLS = (6, 7, 8, 10, 15, 37, 38, 1024)
PROCESSORS = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def step(code: int, then: int, otherwise: int, value: int) -> bytes:
    """Return one instruction of BPF code."""
    return struct.pack("=HBBI", code, then, otherwise, value)


LOAD, EQUAL, AT_LEAST, ANY_BIT, MASK, FINISH = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
ALLOW, KILL, REFUSE, NO_SUCH_CALL = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026


def argument_rule(number: int, argument: int, mask: int, values: tuple[int, ...], *, only: bool = False) -> bytes:
    """Return BPF code that refuses a call if the masked low half of an argument is one of the values.

    With ``only`` the call is refused unless it is one of them.
    """
    if number < 0:
        return b""
    if_equal, if_not = (ALLOW, REFUSE) if only else (REFUSE, ALLOW)
    tests = b"".join(step(EQUAL, 0, 1, value) + step(FINISH, 0, 0, if_equal) for value in values)
    body = step(LOAD, 0, 0, 16 + 8 * argument) + step(MASK, 0, 0, mask) + tests + step(FINISH, 0, 0, if_not)
    return step(EQUAL, 0, len(body) // 8, number) + body


def call_filter(processor: str, landlock_version: int) -> bytes:
    """Return the filter as BPF code; raise ``KeyError`` for a processor that is not in the table.

    It kills on another architecture and refuses the calls of ``CALLS``, and those that this Landlock leaves out.
    """
    column, architecture = PROCESSORS[processor]
    truncates = landlock_version < 3
    tables = [CALLS, {} if landlock_version >= 6 else WITHOUT_SCOPES, WITHOUT_TRUNCATE if truncates else {}]
    numbers = sorted(numbers[column] for table in tables for numbers in table.values() if numbers[column] >= 0)
    parts = [step(LOAD, 0, 0, 4), step(EQUAL, 1, 0, architecture), step(FINISH, 0, 0, KILL), step(LOAD, 0, 0, 0)]
    parts += [step(AT_LEAST, 0, 1, 0x40000000), step(FINISH, 0, 0, REFUSE)]  # the x32 numbers of the same calls
    for number in numbers:
        parts += [step(EQUAL, 0, 1, number), step(FINISH, 0, 0, REFUSE)]
    # These two have their flags in memory; if they report ENOSYS, the C library uses clone and openat.
    for number in (CLONE3[column], *((OPENAT2[column],) if truncates else ())):
        parts += [step(EQUAL, 0, 1, number), step(FINISH, 0, 0, NO_SUCH_CALL)]
    parts += [step(EQUAL, 0, 4, CLONE[column]), step(LOAD, 0, 0, 16)]
    parts += [step(ANY_BIT, 0, 1, ANY_NAMESPACE), step(FINISH, 0, 0, REFUSE), step(FINISH, 0, 0, ALLOW)]
    everything = 0xFFFFFFFF
    parts += [
        argument_rule(PRLIMIT[column], 0, everything, (0,), only=True),  # the own process
        argument_rule(SOCKETPAIR[column], 1, 0xF, (1,), only=True),  # streams: datagrams can be sent to any path
        argument_rule(IOCTL[column], 1, everything, FORBIDDEN_IOCTLS),
        argument_rule(FCNTL[column], 1, everything, FORBIDDEN_FCNTLS),
    ]
    if truncates:  # Landlock refuses to open for writing; emptying needs neither of the two modes that it knows
        for number, argument in ((OPEN[column], 1), (OPENAT[column], 2)):
            parts.append(argument_rule(number, argument, O_TRUNC | os.O_ACCMODE, (O_TRUNC, O_TRUNC | os.O_ACCMODE)))
    return b"".join([*parts, step(FINISH, 0, 0, ALLOW)])
