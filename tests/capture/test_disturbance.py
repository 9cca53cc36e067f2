"""What the program does to descriptors, files, signals and threads harms neither it nor what was recorded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.recorded_program import PREAMBLE, Machine, Recorder, compile_c

KERNEL = 'function = program.function(program.module(b"\\0k\\0"), b"k", (4,))\n'
TEN = KERNEL + "for i in range(10): program.launch(function, (word(i, 4),))\n"


def test_a_program_that_closes_every_descriptor_keeps_its_own_files(record: Recorder) -> None:
    done = record(
        TEN
        + """
os.closerange(3, 100)
folder = Path(sys.argv[1])
own = [os.open(folder / f"own-{i}", os.O_RDWR | os.O_CREAT) for i in range(8)]
program.launch(function, (word(10, 4),))
program.module(b"another")
assert all(os.fstat(file).st_size == 0 for file in own)""",
        record.folder,
    )
    assert len(done.of("launch")) == 10
    assert done.log == (
        "the recording ends here: launches.jsonl cannot be written: "
        "the program closed its descriptor, or it was deleted\n"
    )


def test_a_module_is_not_put_into_another_folder(record: Recorder) -> None:
    done = record(
        TEN
        + """
other = Path(sys.argv[1], "other")
(other / "modules").mkdir(parents=True)
for number in range(3, 100):
    try:
        if os.path.isdir(f"/proc/self/fd/{number}"):
            os.dup2(os.open(other, os.O_RDONLY), number)
    except OSError:
        pass
program.module(b"another")
assert not list((other / "modules").iterdir())""",
        record.folder,
    )
    assert "cubin cannot be written: the program closed its descriptor" in done.log


def test_a_deleted_recording_ends(record: Recorder) -> None:
    done = record(
        TEN
        + """
os.remove(next(Path(os.environ["KERN_CAPTURE_DIR"]).glob("*/launches.jsonl")))
program.launch(function, (word(10, 4),))"""
    )
    assert "it was deleted" in done.log


def test_the_recorder_takes_no_standard_stream(machine: Machine, tmp_path: Path) -> None:
    program = f"import os\n{PREAMBLE}{TEN}os.write(1, b'mi' b'ne')"
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" <&- >&-', sys.executable, program],
        env=machine.environment() | {"CUDA_INJECTION64_PATH": str(machine.recorder), "KERN_CAPTURE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Bad file descriptor" in done.stderr
    (folder,) = tmp_path.iterdir()
    assert b"mine" not in (folder / "launches.jsonl").read_bytes()


SIGNALLED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <stdio.h>
ssize_t write(int file, const void *bytes, size_t size) {
    ssize_t (*real)(int, const void *, size_t);
    *(void **)&real = dlsym(RTLD_NEXT, "write");
    if (memmem(bytes, size, "via", 3))
        raise(SIGUSR1);
    return real(file, bytes, size);
}
"""


def test_a_signal_whose_handler_exits_waits_for_the_line(record: Recorder, tmp_path: Path) -> None:
    (tmp_path / "signalled.c").write_text(SIGNALLED)
    compile_c(tmp_path / "signalled.so", [tmp_path / "signalled.c"])
    done = record(
        "libc = c.CDLL(None)\nlibc.signal(10, libc.exit)\n" + TEN,
        status=10,
        LD_PRELOAD=str(tmp_path / "signalled.so"),
    )
    assert len(done.of("launch")) == 1
    assert done.only("end")["launches"] == 1


CANCELLED = """
#include <pthread.h>
#include <stdint.h>
static void *body(void *fill) {
    pthread_cancel(pthread_self());
    ((int (*)(uint64_t, unsigned, size_t))fill)(0x710000000000, 1, 1);
    pthread_testcancel();
    return NULL;
}
int cancelled(void *fill) {
    pthread_t thread;
    void *result;
    return pthread_create(&thread, NULL, body, fill) == 0 && pthread_join(thread, &result) == 0 &&
           result == PTHREAD_CANCELED;
}
"""


def test_a_thread_that_is_cancelled_leaves_no_lock_behind(record: Recorder, tmp_path: Path) -> None:
    (tmp_path / "cancelled.c").write_text(CANCELLED)
    compile_c(tmp_path / "cancelled.so", [tmp_path / "cancelled.c"], "-pthread")
    done = record(
        TEN
        + """
assert c.CDLL(sys.argv[1]).cancelled(program.cuda.cuMemsetD32_v2) == 1
program.launch(function, (word(10, 4),))""",
        tmp_path / "cancelled.so",
    )
    assert len(done.of("fill")) == 1
    assert len(done.of("launch")) == 11


def test_the_recorder_stays_where_it_is_called(record: Recorder) -> None:
    done = record(
        TEN
        + """
import _ctypes
recorder = c.CDLL(os.environ["CUDA_INJECTION64_PATH"])
for _ in range(3): _ctypes.dlclose(recorder._handle)
program.launch(function, (word(10, 4),))"""
    )
    assert len(done.of("launch")) == 11


BUSY = """
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
static sem_t called;
static void *body(void *fill) {
    for (int first = 1; fill; first = 0) {
        ((int (*)(uint64_t, unsigned, size_t))fill)(0x710000000000, 1, 1);
        if (first) sem_post(&called);
    }
    return fill;
}
int busy(void *fill) {
    pthread_t thread;
    int failed = sem_init(&called, 0, 0) || pthread_create(&thread, NULL, body, fill);
    return failed || sem_wait(&called);
}
"""


def test_nothing_follows_the_end_while_threads_go_on(record: Recorder, tmp_path: Path) -> None:
    (tmp_path / "busy.c").write_text(BUSY)
    compile_c(tmp_path / "busy.so", [tmp_path / "busy.c"], "-pthread")
    done = record(
        TEN + "for _ in range(4): assert c.CDLL(sys.argv[1]).busy(program.cuda.cuMemsetD32_v2) == 0",
        tmp_path / "busy.so",
    )
    assert done.records[-1]["record"] == "end"
    assert done.of("fill")
    assert done.log == ""
