/* The files of one recorded process: launches.jsonl, recorder.log, modules/. */
#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOG_RESERVE = 4096, MOST_FOLDERS = 1000 };

/* A file of the recorder's. The program may close any descriptor, and the number then refers to one of its files. */
struct held {
    int number;
    dev_t device;
    ino_t inode;
};

static struct {
    pthread_mutex_t lock;
    pid_t process;
    struct held folder, launches, log;
    char log_path[4096];
    uint64_t launches_written;
    atomic_bool recording;
} output = {.lock = PTHREAD_MUTEX_INITIALIZER,
            .folder = {.number = -1},
            .launches = {.number = -1},
            .log = {.number = -1}};

uint64_t output_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool output_recording(void) {
    return atomic_load_explicit(&output.recording, memory_order_relaxed) && getpid() == output.process;
}

/* Hold an opened file under a number that is not one of stdin, stdout and stderr, which the program may have closed. */
static bool hold(struct held *held, int opened) {
    struct stat about;
    if (opened < 0)
        return false;
    held->number = fcntl(opened, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int error = errno;
    close(opened);
    errno = error;
    if (held->number < 0 || fstat(held->number, &about) != 0)
        return false;
    held->device = about.st_dev;
    held->inode = about.st_ino;
    return true;
}

/* Whether the number still stands for the recorder's file, and the file has a name. */
static bool ours(const struct held *held, struct stat *about) {
    return fstat(held->number, about) == 0 && about->st_dev == held->device && about->st_ino == held->inode &&
           about->st_nlink;
}

static const char *reason(int why) {
    return why == EBADF ? "the program closed its descriptor, or it was deleted" : strerror(why);
}

/* pid-<pid>, or pid-<pid>-2 and on where another program ran under this id before. */
static int make_folder(const char *dump) {
    char *path = output.log_path;
    size_t room = sizeof output.log_path - strlen("/recorder.log");
    for (int i = 1; i <= MOST_FOLDERS; i++) {
        int length = i == 1 ? snprintf(path, room, "%s/pid-%d", dump, (int)getpid())
                            : snprintf(path, room, "%s/pid-%d-%d", dump, (int)getpid(), i);
        if (length < 0 || (size_t)length >= room)
            return -1;
        if (mkdir(path, 0777) == 0) {
            int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            strcat(path, "/recorder.log");
            return folder;
        }
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

static int make_file(const char *name) {
    return openat(output.folder.number, name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
}

bool output_open(const char *dump) {
    output.process = getpid();
    if (!hold(&output.folder, make_folder(dump)) || mkdirat(output.folder.number, "modules", 0777) != 0 ||
        !hold(&output.log, make_file("recorder.log")))
        return false;
    /* Room that a full disk still has; where the file system cannot keep any, the log is as the rest. */
    (void)!fallocate(output.log.number, FALLOC_FL_KEEP_SIZE, 0, LOG_RESERVE);
    return true;
}

bool output_start(void) {
    if (!hold(&output.launches, make_file("launches.jsonl"))) {
        output_log("launches.jsonl cannot be made: %s", strerror(errno));
        return false;
    }
    atomic_store(&output.recording, true);
    return true;
}

void output_stop(void) { atomic_store(&output.recording, false); }

/* Whether a file may grow to `size`: writing past the limit would raise SIGXFSZ in the program. */
static bool allowed(off_t size) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || (rlim_t)size <= limit.rlim_cur;
}

void output_log(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length < 0 || getpid() != output.process)
        return;
    if ((size_t)length > sizeof line - 2)
        length = sizeof line - 2;
    line[length] = '\n';
    struct stat now;
    bool held = ours(&output.log, &now);
    int file = held ? output.log.number : open(output.log_path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fstat(file, &now) == 0 && allowed(now.st_size + length + 1))
        (void)!write(file, line, (size_t)length + 1);
    if (!held && file >= 0)
        close(file);
}

/* Write all of it or nothing; 0, or the errno that stands for the reason. */
static int append(const char *bytes, size_t count) {
    struct stat before;
    if (!ours(&output.launches, &before))
        return EBADF;
    if (!allowed(before.st_size + (off_t)count))
        return EFBIG;
    ssize_t done = write(output.launches.number, bytes, count);
    if (done == (ssize_t)count)
        return 0;
    int why = done < 0 ? errno : ENOSPC;
    (void)!ftruncate(output.launches.number, before.st_size);
    return why;
}

static void write_line(struct text *line, bool launch) {
    text_put(line, "\n");
    if (line->incomplete) {
        text_free(line);
        output_lost("a record", "no memory is left for it");
        return;
    }
    pthread_mutex_lock(&output.lock);
    int why = output_recording() ? append(line->data, line->length) : 0;
    if (why) {
        output_stop();
        output_log("the recording ends here: launches.jsonl cannot be written: %s", reason(why));
    }
    output.launches_written += launch;
    pthread_mutex_unlock(&output.lock);
    text_free(line);
}

void output_line(struct text *line) { write_line(line, false); }

void output_launch(struct text *line) { write_line(line, true); }

void output_end(void) {
    char line[128];
    pthread_mutex_lock(&output.lock);
    int length = snprintf(line, sizeof line, "{\"record\":\"end\",\"t\":%llu,\"launches\":%llu}\n",
                          (unsigned long long)output_now(), (unsigned long long)output.launches_written);
    int why = output_recording() ? append(line, (size_t)length) : 0;
    output_stop();
    if (why)
        output_log("the end is not recorded: launches.jsonl cannot be written: %s", reason(why));
    pthread_mutex_unlock(&output.lock);
}

static int write_whole(int file, const char *bytes, size_t size) {
    if (!allowed((off_t)size))
        return EFBIG;
    while (size) {
        ssize_t done = write(file, bytes, size);
        if (done <= 0)
            return done < 0 ? errno : ENOSPC;
        bytes += done;
        size -= (size_t)done;
    }
    return 0;
}

/* Write a file that is there whole or not at all; 0, or the errno that stands for the reason. */
static int write_module(int folder, const char *name, const char *bytes, size_t size) {
    char unfinished[64];
    if (faccessat(folder, name, F_OK, 0) == 0)
        return 0;
    snprintf(unfinished, sizeof unfinished, "modules/.%ld", (long)gettid());
    int file = openat(folder, unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int why = file < 0 ? errno : write_whole(file, bytes, size);
    if (file >= 0 && close(file) != 0 && !why)
        why = errno;
    if (!why && renameat(folder, unfinished, folder, name) != 0)
        why = errno;
    if (why)
        unlinkat(folder, unfinished, 0);
    return why;
}

void output_module(const char *sha256, const void *bytes, size_t size) {
    char name[128];
    snprintf(name, sizeof name, "modules/%s.cubin", sha256);
    struct stat folder;
    int why = ours(&output.folder, &folder) ? write_module(output.folder.number, name, bytes, size) : EBADF;
    if (why) {
        output_stop();
        output_log("the recording ends here: %s cannot be written: %s", name, reason(why));
    }
}

char *output_read_module(const char *sha256, size_t *size) {
    char name[128];
    snprintf(name, sizeof name, "modules/%s.cubin", sha256);
    struct stat about;
    int file = ours(&output.folder, &about) ? openat(output.folder.number, name, O_RDONLY | O_CLOEXEC) : -1;
    char *bytes = file >= 0 && fstat(file, &about) == 0 && about.st_size > 0 ? malloc((size_t)about.st_size) : NULL;
    ssize_t done = bytes ? read(file, bytes, (size_t)about.st_size) : -1;
    if (file >= 0)
        close(file);
    if (done < 0) {
        free(bytes);
        return NULL;
    }
    *size = (size_t)done;
    return bytes;
}

void output_lost(const char *what, const char *why) {
    if (!output_recording())
        return;
    output_log("%s: %s", what, why);
    struct text line = {0};
    text_format(&line, "{\"record\":\"lost\",\"t\":%llu,\"what\":", (unsigned long long)output_now());
    text_string(&line, what, strlen(what));
    text_put(&line, ",\"why\":");
    text_string(&line, why, strlen(why));
    text_put(&line, "}");
    if (line.incomplete)
        text_free(&line); /* the log has it */
    else
        output_line(&line);
}
