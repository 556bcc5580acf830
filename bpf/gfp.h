/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* How a request for memory is made. The kernel's types do not tell these. */
#ifndef PLIMSOLL_GFP_H
#define PLIMSOLL_GFP_H

/* include/linux/gfp_types.h (gfp.h before 6.0), the same bits from 6.1 to 7.2. */
#define __GFP_MOVABLE 0x8
#define __GFP_DIRECT_RECLAIM 0x400
#define __GFP_NOWARN 0x2000
#define __GFP_NOFAIL 0x8000
#define __GFP_NORETRY 0x10000

#endif
