// Puts testpmd's memory on transparent huge pages if the system has no reserved ones; preloaded by scripts/bench-peers.
//
// With --no-huge, DPDK maps a file in memory with pages of 4 KiB, and no buffer crosses a page. So each buffer starts
// on a separate page, and the first lines of all buffers share a few sets of the first-level cache. With this library,
// DPDK uses anonymous memory on transparent huge pages, and buffers are contiguous, as on huge pages of hugetlbfs.

#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGE_PAGE (2UL << 20)
// Since Linux 6.1.
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

struct rte_mempool;

// DPDK creates its memory as a file with the name `nohuge`, which cannot use transparent huge pages. So this function
// fails for this name, and DPDK then uses anonymous memory.
int memfd_create(const char *name, unsigned flags)
{
    if (strcmp(name, "nohuge") == 0) {
        errno = ENOSYS;
        return -1;
    }
    return (int)syscall(SYS_memfd_create, name, flags);
}

static void *map(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}

// The reservation is aligned to a huge page, and the memory that is mapped into it asks for huge pages.
void *mmap64(void *at, size_t length, int protection, int flags, int fd, off64_t offset)
{
    int wanted = (flags & MAP_ANONYMOUS) && length >= 16 * HUGE_PAGE;
    if (wanted && !(flags & MAP_FIXED)) {
        char *start = map(NULL, length + HUGE_PAGE, protection, flags, fd, offset);
        if (start == MAP_FAILED) {
            return MAP_FAILED;
        }
        size_t before = -(size_t)start % HUGE_PAGE;
        if (before) {
            munmap(start, before);
        }
        munmap(start + before + length, HUGE_PAGE - before);
        return start + before;
    }
    void *mapped = map(at, length, protection, flags, fd, offset);
    if (wanted && mapped != MAP_FAILED && (protection & PROT_WRITE)) {
        madvise(mapped, length, MADV_HUGEPAGE);
        // If free memory is fragmented, the kernel finds some huge pages only when all pages are requested together.
        memset(mapped, 0, length);
        madvise(mapped, length, MADV_COLLAPSE);
    }
    return mapped;
}

void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    return mmap64(at, length, protection, flags, fd, offset);
}

// Returns the size of pages whose boundaries buffers must not cross.
int rte_mempool_get_page_size(struct rte_mempool *pool, size_t *size)
{
    (void)pool;
    *size = HUGE_PAGE;
    return 0;
}
