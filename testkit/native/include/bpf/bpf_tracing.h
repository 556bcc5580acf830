/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* libbpf's header of this name, for programs compiled for this machine: a program gets its arguments as numbers. */
#ifndef PLIMSOLL_NATIVE_TRACING_H
#define PLIMSOLL_NATIVE_TRACING_H

#define NATIVE_CAST_0()
#define NATIVE_CAST_1(a) , (void *)ctx[0]
#define NATIVE_CAST_2(a, b) NATIVE_CAST_1(a), (void *)ctx[1]
#define NATIVE_CAST_3(a, b, c) NATIVE_CAST_2(a, b), (void *)ctx[2]
#define NATIVE_PICK(_0, _1, _2, _3, name, ...) name
#define NATIVE_CASTS(...) \
	NATIVE_PICK(_0, ##__VA_ARGS__, NATIVE_CAST_3, NATIVE_CAST_2, NATIVE_CAST_1, NATIVE_CAST_0)(__VA_ARGS__)

#define BPF_PROG(name, args...)                                                                                      \
	name(__u64 *ctx);                                                                                            \
	static inline int native_##name(__u64 *ctx, ##args);                                                         \
	int name(__u64 *ctx)                                                                                         \
	{                                                                                                            \
		_Pragma("GCC diagnostic push") _Pragma(                                                              \
			"GCC diagnostic ignored \"-Wint-conversion\"") return native_##name(ctx NATIVE_CASTS(args)); \
		_Pragma("GCC diagnostic pop")                                                                        \
	}                                                                                                            \
	static inline int native_##name(__u64 *ctx, ##args)

#endif
