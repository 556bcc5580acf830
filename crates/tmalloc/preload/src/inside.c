// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Whether this thread is in the library. In C because Rust cannot ask for the initial-exec model: any other one may have the
// C library allocate the variable, by the function that looks at it.

int tmalloc_preload_enter(void);
void tmalloc_preload_leave(void);

static __thread int inside __attribute__((tls_model("initial-exec")));

// 0: it is in there already.
__attribute__((visibility("hidden"))) int tmalloc_preload_enter(void)
{
	if (inside)
		return 0;
	inside = 1;
	return 1;
}

__attribute__((visibility("hidden"))) void tmalloc_preload_leave(void)
{
	inside = 0;
}
