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

static struct {
    pthread_mutex_t lock;
    pid_t process;
    int folder, launches, log;
    off_t written; /* whole lines of launches.jsonl, bytes */
    atomic_bool recording;
} output = {.lock = PTHREAD_MUTEX_INITIALIZER, .folder = -1, .launches = -1, .log = -1};

uint64_t output_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool output_recording(void) {
    return atomic_load_explicit(&output.recording, memory_order_relaxed) && getpid() == output.process;
}

/* pid-<pid>, or pid-<pid>-2 and on where another program ran under this id before. */
static int make_folder(const char *dump) {
    for (int i = 1; i <= MOST_FOLDERS; i++) {
        char path[4096];
        int length = i == 1 ? snprintf(path, sizeof path, "%s/pid-%d", dump, (int)getpid())
                            : snprintf(path, sizeof path, "%s/pid-%d-%d", dump, (int)getpid(), i);
        if (length < 0 || (size_t)length >= sizeof path)
            return -1;
        if (mkdir(path, 0777) == 0)
            return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

bool output_open(const char *dump) {
    output.process = getpid();
    output.folder = make_folder(dump);
    if (output.folder < 0 || mkdirat(output.folder, "modules", 0777) != 0)
        return false;
    output.log = openat(output.folder, "recorder.log", O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (output.log < 0)
        return false;
    /* Room that a full disk still has; where the file system cannot keep any, the log is as the rest. */
    (void)!fallocate(output.log, FALLOC_FL_KEEP_SIZE, 0, LOG_RESERVE);
    return true;
}

bool output_start(void) {
    output.launches = openat(output.folder, "launches.jsonl", O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (output.launches < 0) {
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
    if (length < 0 || output.log < 0 || getpid() != output.process)
        return;
    if ((size_t)length > sizeof line - 2)
        length = sizeof line - 2;
    line[length] = '\n';
    struct stat now;
    if (fstat(output.log, &now) == 0 && allowed(now.st_size + length + 1))
        (void)!write(output.log, line, (size_t)length + 1);
}

/* Write all of it or nothing; 0, or the errno that stands for the reason. */
static int append(const char *bytes, size_t count) {
    if (!allowed(output.written + (off_t)count))
        return EFBIG;
    ssize_t done;
    do
        done = write(output.launches, bytes, count);
    while (done < 0 && errno == EINTR);
    if (done == (ssize_t)count) {
        output.written += done;
        return 0;
    }
    int why = done < 0 ? errno : ENOSPC;
    (void)!ftruncate(output.launches, output.written);
    return why;
}

void output_line(struct text *line) {
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
        output_log("the recording ends here: launches.jsonl cannot be written: %s", strerror(why));
    }
    pthread_mutex_unlock(&output.lock);
    text_free(line);
}

static int write_whole(int file, const char *bytes, size_t size) {
    if (!allowed((off_t)size))
        return EFBIG;
    while (size) {
        ssize_t done = write(file, bytes, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? errno : ENOSPC;
        bytes += done;
        size -= (size_t)done;
    }
    return 0;
}

void output_module(const char *sha256, const void *bytes, size_t size) {
    char name[128], unfinished[160];
    snprintf(name, sizeof name, "modules/%s.cubin", sha256);
    if (faccessat(output.folder, name, F_OK, 0) == 0)
        return;
    snprintf(unfinished, sizeof unfinished, "modules/.%s.%ld", sha256, (long)gettid());
    int file = openat(output.folder, unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int why = file < 0 ? errno : write_whole(file, bytes, size);
    if (file >= 0 && close(file) != 0 && !why)
        why = errno;
    if (!why && renameat(output.folder, unfinished, output.folder, name) != 0)
        why = errno;
    if (why) {
        unlinkat(output.folder, unfinished, 0);
        output_stop();
        output_log("the recording ends here: %s cannot be written: %s", name, strerror(why));
    }
}

char *output_read_module(const char *sha256, size_t *size) {
    char name[128];
    snprintf(name, sizeof name, "modules/%s.cubin", sha256);
    int file = openat(output.folder, name, O_RDONLY | O_CLOEXEC);
    struct stat about;
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
