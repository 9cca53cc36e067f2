"""What is recorded outlives the program, and the program does not notice the recording, nor errors of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kern.capture.library import SOURCES
from support.recorded_program import SUPPORT, Machine, Recorder, compile_c

KERNEL = 'function = program.function(program.module(b"\\0k\\0"), b"k", (4,))\n'
TEN = KERNEL + "for i in range(10): program.launch(function, (word(i, 4),))\n"


def test_a_recording_begins_with_the_process_and_ends_with_a_count(record: Recorder) -> None:
    done = record(TEN, "an argument")
    first, last = done.records[0], done.records[-1]
    assert done.folder.name == f"pid-{first['pid']}"
    assert first["record"] == "process"
    assert first["format"] == 1
    assert (first["command"][1], first["command"][-1]) == ("-c", "an argument")
    assert (first["driver"], first["cupti"]) == (13000, 130001)
    assert (last["record"], last["launches"]) == ("end", 10)
    assert done.log == ""
    assert [launch["params"] for launch in done.of("launch")] == [[i.to_bytes(4, "little").hex()] for i in range(10)]


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("os.abort()", -signal.SIGABRT),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("c.string_at(0)", -signal.SIGSEGV),
        ("os._exit(3)", 3),
    ],
)
def test_all_that_happened_before_the_end_is_there(record: Recorder, ending: str, status: int) -> None:
    done = record(TEN + ending, status=status)
    assert len(done.of("launch")) == 10
    assert not done.of("end")
    assert done.log == ""


def test_an_exit_status_and_the_output_are_the_programs_own(record: Recorder) -> None:
    done = record(TEN + 'print("out")\nprint("err", file=sys.stderr)\nsys.exit(5)', status=5)
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    assert done.only("end")


def test_lines_of_many_threads_are_whole(record: Recorder) -> None:
    done = record(
        KERNEL
        + """
import threading
def work(number):
    own = program.function(program.module(word(number) + b"\\0k\\0"), b"k", (4,))
    for i in range(200): program.launch(own, (word(i, 4),))
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()"""
    )
    launches = done.of("launch")
    assert len(launches) == done.only("end")["launches"] == 800
    by_thread: dict[int, list[str]] = {}
    for launch in launches:
        by_thread.setdefault(launch["thread"], []).append(launch["params"][0])
    assert list(by_thread.values()) == [[i.to_bytes(4, "little").hex() for i in range(200)]] * 4
    pairs = {(launch["kernel"], launch["thread"]) for launch in launches}
    assert sorted(kernel for kernel, _ in pairs) == [0, 1, 2, 3]


def test_a_fork_writes_nothing_into_its_parents_recording(record: Recorder) -> None:
    done = record(
        TEN
        + """
child = os.fork()
if not child:
    program.launch(function, (word(99, 4),))
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
program.launch(function, (word(10, 4),))"""
    )
    assert [launch["params"] for launch in done.of("launch")][9:] == [["09000000"], ["0a000000"]]
    assert len(done.of("end")) == 1


def test_two_programs_of_one_process_have_a_folder_each(record: Recorder) -> None:
    done = record(
        TEN
        + """
if len(sys.argv) == 1:
    os.execv(sys.executable, [*sys.orig_argv, "again"])"""
    )
    first, second = sorted(done.dump.iterdir())
    assert second.name == f"{first.name}-2"
    for folder in (first, second):
        kinds = [json.loads(line)["record"] for line in (folder / "launches.jsonl").read_text().splitlines()]
        assert kinds.count("launch") == 10
    assert kinds[-1] == "end"


def test_a_file_size_limit_ends_the_recording_alone(record: Recorder) -> None:
    done = record(
        """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))"""
        + "\n"
        + KERNEL
        + 'for i in range(100): program.launch(function, (word(i, 4),))\nprint("done")'
    )
    assert done.stdout == "done\n"
    assert len(done.text) <= 5000
    assert 5 < len(done.of("launch")) < 100
    assert not done.of("end")
    assert done.log == "the recording ends here: launches.jsonl cannot be written: File too large\n"


FULL = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <stdio.h>
ssize_t write(int file, const void *bytes, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    static int count;
    char link[64], path[512] = "";
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "write");
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    if (!strstr(path, getenv("FULL_FILE")) || ++count < atoi(getenv("FULL_AFTER")))
        return real(file, bytes, size);
    errno = ENOSPC;
    return count == atoi(getenv("FULL_AFTER")) && size > 1 ? real(file, bytes, size / 2) : -1;
}
"""


@pytest.mark.parametrize(("file", "after", "launches"), [("launches.jsonl", 8, 4), ("modules/.", 1, 0)])
def test_a_full_disk_ends_the_recording_alone(
    record: Recorder, tmp_path: Path, file: str, after: int, launches: int
) -> None:
    (tmp_path / "full.c").write_text(FULL)
    compile_c(tmp_path / "full.so", [tmp_path / "full.c"])
    done = record(TEN + 'print("done")', LD_PRELOAD=str(tmp_path / "full.so"), FULL_FILE=file, FULL_AFTER=str(after))
    assert done.stdout == "done\n"
    assert len(done.of("launch")) == launches
    assert not done.of("end")
    assert "No space left on device" in done.log
    assert len(done.log.splitlines()) == 1
    assert not [path for path in (done.folder / "modules").iterdir() if path.suffix != ".cubin"]


def test_the_log_has_room_that_is_its_own(record: Recorder) -> None:
    log = record(TEN).folder / "recorder.log"
    assert log.stat().st_size == 0
    assert log.stat().st_blocks * 512 >= 4096


@pytest.mark.parametrize("dump", ["/proc/nowhere", ""])
def test_a_dump_that_cannot_be_written_harms_nothing(record: Recorder, dump: str) -> None:
    done = record(TEN + 'print("done")', KERN_CAPTURE_DIR=dump)
    assert (done.stdout, done.stderr) == ("done\n", "")
    assert not list(done.dump.iterdir())


def test_without_a_libcupti_of_its_own_a_program_takes_the_named_one(record: Recorder, machine: Machine) -> None:
    named = str(machine.libraries / "libcupti.so.13")
    done = record(TEN, FAKE_WITHOUT_CUPTI="1", KERN_CUPTI=named)
    assert len(done.of("launch")) == 10


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"FAKE_WITHOUT_CUPTI": "1", "KERN_CUPTI": ""}, "KERN_CUPTI names none"),
        ({"FAKE_WITHOUT_CUPTI": "1", "KERN_CUPTI": "/nowhere/libcupti.so"}, "/nowhere/libcupti.so"),
        ({"FAKE_CUPTI_TAKEN": "1"}, "MULTIPLE_SUBSCRIBERS"),
    ],
)
def test_a_recorder_that_cannot_start_says_why(record: Recorder, environment: dict[str, str], reason: str) -> None:
    done = record(TEN + 'print("done")', **environment)
    assert done.stdout == "done\n"
    assert reason in done.log
    assert len(done.log.splitlines()) == 1
    assert not (done.folder / "launches.jsonl").exists()


def test_nothing_is_wrong_with_memory_or_arithmetic(machine: Machine, tmp_path: Path) -> None:
    """The recorder under the address and undefined behaviour sanitizers, on a program that does everything."""
    checked = tmp_path / "checked.so"
    compile_c(checked, sorted(SOURCES.glob("*.c")), "-fsanitize=address,undefined", "-g", "-O1", "-pthread")
    runtime = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    (tmp_path / "dump").mkdir()
    done = subprocess.run(
        [sys.executable, SUPPORT / "fake_cuda" / "everything.py"],
        env=machine.environment()
        | {
            "CUDA_INJECTION64_PATH": str(checked),
            "KERN_CAPTURE_DIR": str(tmp_path / "dump"),
            "LD_PRELOAD": runtime.stdout.strip(),
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "halt_on_error=1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (folder,) = (tmp_path / "dump").iterdir()
    assert b'"record":"end"' in (folder / "launches.jsonl").read_bytes()
