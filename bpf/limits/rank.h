/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What processes are compared by. Three tiers: who asks for its memory and keeps to what it was granted goes only when
 * nobody else of its account is left that could, and what a user's session stands on after these. When one is chosen, all
 * whose end is enough come before all others, but for the session: its end takes the others with it.
 */
#ifndef PLIMSOLL_LIMITS_RANK_H
#define PLIMSOLL_LIMITS_RANK_H

/* So far below come those whose end is not enough. */
#define SHORT_RANKS (2 * TIER_RANKS)
/* And so far what a session stands on. */
#define SESSION_RANKS (4 * TIER_RANKS)
/* See standing_of(). */
#define COUNTS_TIMES_BACK 8
/* Below every rank: of a free place, and of who has no pages. */
#define RANK_NONE (-8 * TIER_RANKS)

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

/* Bounded, so that no session is a place to hide in. */
static __always_inline bool carries_session(struct plimsoll_account *a, struct plimsoll_mm *e)
{
	return e->flags & PLIMSOLL_MM_SESSION && pages_of(e) <= a->hard_pages >> PLIMSOLL_SESSION_SHIFT;
}

/* What so many pages of it count, weighed, in its tier. */
static __always_inline __s64 rank_with(struct plimsoll_account *a, struct plimsoll_mm *e, __s64 pages)
{
	return pages * weight_of(e) - (carries_session(a, e) ? SESSION_RANKS : keeps_to_grants(e) ? TIER_RANKS : 0);
}

/* A page count that dips below 0 for an instant counts as none. */
static __always_inline __s64 rank_of(struct plimsoll_account *a, struct plimsoll_mm *e)
{
	__s64 pages = pages_of(e);

	return pages > 0 ? rank_with(a, e, pages) : RANK_NONE;
}

/*
 * What its account would be charged less without the dying, if it were one of them, as settle_dying_space(),
 * settle_dying_family() and release_reserved() have it: of what it shares since a fork nothing, while another of its family
 * lives.
 */
static __always_inline __s64 gives_back(struct plimsoll_account *a, struct plimsoll_mm *e)
{
	__s64 pages = word_pages(e->word) + copies_of(e), reserved = word_pages(e->reserved);
	__u64 id = e->family;
	struct plimsoll_family *f = id ? bpf_map_lookup_elem(&families, &id) : 0;

	if (f && f->living <= 1 && is_charged(f->account, a->index))
		pages += f->pages;
	return reserved > 0 ? pages + reserved : pages;
}

/*
 * As rank_of(), with those last whose end would not bring its account to its line. Who shares most of what it is charged
 * since a fork gives little of it back, and the next would have to go at once: it counts so many times what comes back at
 * most. The same is in policy (selection.rs). This and the next are global, so that the verifier walks their branches once,
 * and not in each step of a search.
 */
__noinline __s64 standing_of(__u32 account, __u64 key)
{
	struct plimsoll_account *a = account_at(account);
	struct plimsoll_mm *e = bpf_map_lookup_elem(&mms, &key);
	__s64 pages, back;

	if (!a || !e)
		return RANK_NONE;
	pages = pages_of(e);
	if (pages <= 0)
		return RANK_NONE;
	back = gives_back(a, e);
	if (back < 0)
		back = 0;
	if (pages > back * COUNTS_TIMES_BACK)
		pages = back * COUNTS_TIMES_BACK;
	pages = rank_with(a, e, pages);
	return remaining_own(a, a->usage_pages) - back <= a->effective_pages ? pages : pages - SHORT_RANKS;
}

/* What comes before a rank: bits of grants, of SHORT_RANKS, of a session. */
static __always_inline __s64 tiers_of(__s64 rank)
{
	return -(rank >> TIER_SHIFT);
}

/* Enough or not: the next crossing may need less. */
__noinline __s64 rank_in(__s64 standing)
{
	return tiers_of(standing) & 2 ? standing + SHORT_RANKS : standing;
}

#endif
