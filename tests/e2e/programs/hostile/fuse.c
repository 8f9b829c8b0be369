/*
 * A file system of one's own, which may stop answering:
 *
 *     fuse FILE FOLDER UID [OVERLAY EMPTY]
 *
 * Mounts at FOLDER a file system (FUSE) that has FILE under the name libcuda.so.1, with FILE's
 * inode, size and times, served for user UID, and, if asked to, an overlay of it and of the folder
 * EMPTY at OVERLAY; then /tmp is the file system, too. Maps the file as code, says "ready", and
 * does what it is told on standard input, a word a line:
 *
 *     look         tells debuggers of new libraries: whoever traces looks at what is mapped
 *     drop         pages of the file leave memory, and are read when they are needed again
 *     stop         no request is answered any more
 *
 * Whatever it is told, it has itself looked at. It says "done" after each, and ends when its input
 * does: what it has mounted is its own namespace's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER_NODE = 1, FILE_NODE = 2, MAX_READ = 128 << 10, VALID_SECONDS = 3600 };

static int file, connection;
static struct stat status;
/* The mapped file. */
static char path[4096];
static void *code;
/* Shared with the serving process. */
static volatile int *is_stopped;

static void answer(uint64_t unique, int error, const void *data, size_t size)
{
    static char bytes[sizeof(struct fuse_out_header) + MAX_READ];
    struct fuse_out_header header = { .error = -error, .unique = unique };
    header.len = sizeof header + (error ? 0 : size);
    memcpy(bytes, &header, sizeof header);
    if (!error && size)
        memcpy(bytes + sizeof header, data, size);
    /* The requester may have given up. */
    (void)!write(connection, bytes, header.len);
}

static struct fuse_attr attributes(uint64_t node)
{
    struct fuse_attr attr = { .ino = node, .nlink = 1, .blksize = 4096, .mode = S_IFDIR | 0755 };
    if (node != FILE_NODE)
        return attr;
    attr.mode = S_IFREG | 0755;
    attr.ino = status.st_ino;
    attr.size = status.st_size;
    attr.mtime = status.st_mtim.tv_sec;
    attr.mtimensec = status.st_mtim.tv_nsec;
    attr.ctime = status.st_ctim.tv_sec;
    attr.ctimensec = status.st_ctim.tv_nsec;
    return attr;
}

static void serve_one(struct fuse_in_header *in, void *body)
{
    static char bytes[MAX_READ];
    struct fuse_init_out init = { .major = 7, .minor = 31, .max_write = 4096 };
    struct fuse_entry_out entry = { .nodeid = FILE_NODE, .attr = attributes(FILE_NODE) };
    /* A request for it would fail for users without an id in the server's user namespace. */
    entry.entry_valid = entry.attr_valid = VALID_SECONDS;
    struct fuse_attr_out attr = { .attr = attributes(in->nodeid) };
    attr.attr_valid = in->nodeid == FILE_NODE ? VALID_SECONDS : 0;
    struct fuse_open_out open = { 0 };
    struct fuse_statfs_out system = { .st = { .bsize = 4096, .namelen = 255 } };
    switch (in->opcode) {
    case FUSE_INIT:
        answer(in->unique, 0, &init, sizeof init);
        break;
    case FUSE_LOOKUP:
        answer(in->unique, strcmp(body, "libcuda.so.1") ? ENOENT : 0, &entry, sizeof entry);
        break;
    case FUSE_GETATTR:
        answer(in->unique, 0, &attr, sizeof attr);
        break;
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        answer(in->unique, 0, &open, sizeof open);
        break;
    case FUSE_READ: {
        struct fuse_read_in *wanted = body;
        size_t size = wanted->size < MAX_READ ? wanted->size : MAX_READ;
        ssize_t got = pread(file, bytes, size, wanted->offset);
        answer(in->unique, got < 0 ? EIO : 0, bytes, got);
        break;
    }
    case FUSE_READDIR:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FLUSH:
        answer(in->unique, 0, NULL, 0);
        break;
    case FUSE_STATFS:
        answer(in->unique, 0, &system, sizeof system);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break;
    default:
        answer(in->unique, ENOSYS, NULL, 0);
    }
}

static void serve(void)
{
    static char request[FUSE_MIN_READ_BUFFER + MAX_READ];
    for (;;) {
        ssize_t got = read(connection, request, sizeof request);
        if (got < 0 && (errno == EINTR || errno == ENOENT))
            continue;
        if (got < (ssize_t)sizeof(struct fuse_in_header))
            _exit(0);
        struct fuse_in_header *in = (struct fuse_in_header *)request;
        request[got] = 0;
        if (!*is_stopped)
            serve_one(in, in + 1);
    }
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void mount_it(const char *folder, const char *uid)
{
    char options[256];
    const char *device = getenv("FUSE_DEVICE");
    connection = open(device ? device : "/dev/fuse", O_RDWR | O_CLOEXEC);
    if (connection < 0)
        fail("the FUSE device");
    snprintf(options, sizeof options,
             "fd=%d,rootmode=40000,user_id=%s,group_id=%s,allow_other,max_read=%d", connection, uid,
             uid, MAX_READ);
    if (mount("fuse", folder, "fuse", MS_NOSUID | MS_NODEV, options))
        fail("mount fuse");
    pid_t parent = getpid();
    if (!fork()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            serve();
        _exit(0);
    }
    /* So that no process is left waiting for an answer when all are killed. */
    close(connection);
}

static void map_it(const char *folder)
{
    snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
    int mapped = open(path, O_RDONLY);
    if (mapped < 0)
        fail(path);
    code = mmap(NULL, status.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, mapped, 0);
    if (code == MAP_FAILED)
        fail("mmap");
    close(mapped);
}

static void drop(void)
{
    /* This process's pages, with breakpoints; then, by opening the file, those of the kernel. */
    if (madvise(code, status.st_size, MADV_DONTNEED))
        fail("madvise");
    int again = open(path, O_RDONLY);
    if (again < 0)
        fail(path);
    close(again);
}

int main(int count, char **words)
{
    char line[64], options[4096];
    if (count != 4 && count != 6)
        return 2;
    void (*tell)(void);
    *(void **)&tell = dlsym(RTLD_DEFAULT, "_dl_debug_state");
    if (!tell)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    is_stopped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    file = open(words[1], O_RDONLY);
    if (file < 0 || fstat(file, &status))
        fail(words[1]);
    mount_it(words[2], words[3]);
    const char *folder = words[2];
    if (count == 6) {
        folder = words[4];
        snprintf(options, sizeof options, "lowerdir=%s:%s,userxattr", words[2], words[5]);
        if (mount("overlay", folder, "overlay", 0, options))
            fail("mount overlay");
    }
    map_it(folder);
    if (count == 6 && mount(words[2], "/tmp", NULL, MS_BIND, NULL))
        fail("mount /tmp");
    puts("ready");
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "drop\n"))
            drop();
        if (!strcmp(line, "stop\n"))
            *is_stopped = 1;
        tell();
        puts("done");
    }
    /* Closing the file would wait for the serving process. */
    _exit(0);
}
