/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What processes are compared by. Two tiers: who asks for its memory and keeps to what it was granted goes only when
 * nobody else of its account is left that could.
 */
#ifndef PLIMSOLL_LIMITS_RANK_H
#define PLIMSOLL_LIMITS_RANK_H

/* Pages times weight stay below it: ranks of the lower tier are so far below those of the upper one. */
#define TIER_RANKS (1LL << 62)
/* Below every rank: of a free place, and of who has no pages. */
#define RANK_NONE (-TIER_RANKS)

/* Without its flag bits: neutral where nobody has said anything. */
static __always_inline __u32 weight_of(struct plimsoll_mm *e)
{
	__u32 weight = e->flags >> PLIMSOLL_MM_WEIGHT_SHIFT;

	return weight ? weight : PLIMSOLL_WEIGHT_NEUTRAL;
}

/*
 * Whether it has no more than it was granted, and a small allowance for what nobody asks for. With inherited pages: a
 * fork changes nothing. Who was granted nothing did not ask, however small it is.
 */
static __always_inline bool keeps_to_grants(struct plimsoll_mm *e)
{
	__s64 granted = e->granted_pages;

	return granted > 0 && pages_of(e) <= granted + allowance_pages;
}

/* A page count that dips below 0 for an instant counts as none. */
static __always_inline __s64 rank_of(struct plimsoll_mm *e)
{
	__s64 pages = pages_of(e);

	if (pages <= 0)
		return RANK_NONE;
	return pages * weight_of(e) - (keeps_to_grants(e) ? TIER_RANKS : 0);
}

#endif
