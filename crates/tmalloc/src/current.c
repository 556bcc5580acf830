// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The thread's cache. In C because Rust cannot ask for the initial-exec model, without which a shared library asks the
// dynamic linker for the address at each allocation; nor for a variable that a C library may lack.

void *plimsoll_tmalloc_current(void);
void plimsoll_tmalloc_set_current(void *cache);
int plimsoll_tmalloc_is_alone(void);

// Of glibc since 2.32.
extern char __libc_single_threaded __attribute__((weak));

static __thread void *current __attribute__((tls_model("initial-exec")));

__attribute__((visibility("hidden"))) void *plimsoll_tmalloc_current(void)
{
	return current;
}

__attribute__((visibility("hidden"))) void plimsoll_tmalloc_set_current(void *cache)
{
	current = cache;
}

// Whether the process is known to have one thread.
__attribute__((visibility("hidden"))) int plimsoll_tmalloc_is_alone(void)
{
	return &__libc_single_threaded && __libc_single_threaded;
}
