// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The thread's cache. In C because Rust cannot ask for the initial-exec model, without which a shared library asks the
// dynamic linker for the address at each allocation.

void *plimsoll_tmalloc_current(void);
void plimsoll_tmalloc_set_current(void *cache);

static __thread void *current __attribute__((tls_model("initial-exec")));

__attribute__((visibility("hidden"))) void *plimsoll_tmalloc_current(void)
{
	return current;
}

__attribute__((visibility("hidden"))) void plimsoll_tmalloc_set_current(void *cache)
{
	current = cache;
}
