//! Those who go with a victim: told to the service manager, signalled after it, or in a dry run only named.

use crate::{
    facts::cgroups::Group,
    guard::{
        context::Context,
        kernel::Kernel,
        kill::{
            Kill,
            cgroups::{Order, UnitMark},
        },
        selection::census::{Belonging, Census, Company, TREE_MAX, Tree},
    },
};
use plimsoll_policy::{
    human::escaped,
    incident::Victim,
    selection::{Candidate, Decision},
    victim::{Signal, VictimId},
};

/// What the service manager is told before the first signal, so that it does not take the end for a crash; `None`: nothing.
fn beginning(belonging: &Belonging) -> Option<UnitMark> {
    let Belonging { cgroup, child_of_init, company } = belonging;
    match (company, cgroup) {
        (Company::Cgroup(group), _) => {
            Some(UnitMark { cgroup: group.path.clone(), whole: true, killed: None })
        }
        // The manager does not hear of the end of any other, and would blame the unit's own end on it later.
        (Company::Nobody | Company::Tree(_), Some(cgroup)) if *child_of_init => {
            Some(UnitMark { cgroup: cgroup.clone(), whole: false, killed: None })
        }
        (Company::Nobody | Company::Tree(_), _) => None,
    }
}

fn order<K: Kernel>(group: &Group, dry_run: bool, context: &mut Context<K>) {
    let (cgroup, eligibility) = (group.clone(), context.eligibility.clone());
    let order = Order { cgroup, ordered: context.now(), eligibility, dry_run };
    if !context.workers.groups.order(order) {
        context.notices.say("a cgroup was not killed with its victim: too many wait their turn");
    }
}

/// Before the first signal: the service manager is told.
pub(in crate::guard) fn announce<K: Kernel>(belonging: &Belonging, context: &mut Context<K>) {
    if let Some(unit) = beginning(belonging)
        && !context.workers.groups.mark(unit.clone())
    {
        let unit = escaped(&String::from_utf8_lossy(&unit.cgroup));
        context.notices.say(format_args!(
            "systemd may hear too late why a process of {unit} was killed: the result of the unit may be signal"
        ));
    }
}

/// After the victim's signal, and only if it got one: the rest of its tree; or everybody else of a cgroup that goes whole
/// is given to the thread that ends cgroups. `skip`: who is on the way out already, or cannot be signalled.
pub(in crate::guard) fn end_together<K: Kernel>(
    census: &mut Census,
    skip: impl Fn(VictimId) -> bool,
    belonging: &Belonging,
    kill: &mut Kill<K>,
    context: &mut Context<K>,
) {
    let together = kill.victims().count();
    match &belonging.company {
        Company::Nobody => {}
        Company::Tree(tree) => {
            let tree = of_this_moment(census, tree, context);
            let before = census.unlooked();
            // The victim itself, and those of its memory: they were signalled first.
            let others = tree.members.into_iter().filter(|id| !skip(*id));
            others.for_each(|id| end_one(census, id, kill, context));
            let missed = census.unlooked().saturating_sub(before);
            if missed > 0 {
                context.notices.say(format_args!(
                    "of a victim's tree {missed} processes could not be looked at and were not ended"
                ));
            }
            if tree.left > 0 {
                context.notices.say(format_args!(
                    "of a victim's tree {TREE_MAX} processes were ended and {} more were not",
                    tree.left
                ));
            }
        }
        Company::Cgroup(group) => {
            order(group, false, context);
            // Who is in it is known to the thread that ends it.
            census.spoil();
        }
    }
    if let Some(UnitMark { cgroup, whole: false, .. }) = beginning(belonging) {
        let others = kill.victims().count().saturating_sub(together);
        let killed = u64::try_from(others).unwrap_or(u64::MAX).saturating_add(1);
        if !context.workers.groups.mark(UnitMark { cgroup, whole: false, killed: Some(killed) }) {
            // The number is for systemd's log alone.
        }
    }
    kill.victims().for_each(|one| census.strike(one.id()));
}

/// A tree as it is now: a job starts others all the time, and what is known of it may be seconds old.
fn of_this_moment<K: Kernel>(census: &mut Census, tree: &Tree, context: &mut Context<K>) -> Tree {
    let mut tree = tree.clone();
    if let Err(error) = census.take_again(&mut context.kernel) {
        context.notices.once("machine guard", &error);
        context.notices.say("of a victim's tree nobody else was ended: processes could not be listed");
        return Tree::default();
    }
    tree.left = 0;
    census.follow(&mut tree);
    tree
}

fn end_one<K: Kernel>(census: &mut Census, id: VictimId, kill: &mut Kill<K>, context: &mut Context<K>) {
    let Some(candidate) = census.endable(id, &mut context.kernel, &context.eligibility) else {
        return;
    };
    if context.pending.find(id).is_none() {
        kill.send(&candidate, None, None, context);
    }
}

/// What a dry run says would have been done, step by step: whoever would have been signalled, in that order.
pub(in crate::guard) fn rehearse<K: Kernel>(
    census: &mut Census,
    decision: &Decision,
    signal: Signal,
    belonging: &Option<Belonging>,
    context: &mut Context<K>,
) -> Vec<Victim> {
    let mut ends: Vec<Candidate> = decision.together().copied().collect();
    if let (true, Signal::Kill, Some(belonging)) = (decision.dry_run, signal, belonging) {
        if let Some(unit) = beginning(belonging) {
            let unit = escaped(&String::from_utf8_lossy(&unit.cgroup));
            context.notices.say(format_args!("dry run: would have marked the unit of {unit} for systemd"));
        }
        match &belonging.company {
            Company::Nobody => {}
            Company::Tree(tree) => {
                let tree = of_this_moment(census, tree, context);
                for id in tree.members {
                    let known = ends.iter().any(|one| one.id() == id);
                    ends.extend(
                        census.endable(id, &mut context.kernel, &context.eligibility).filter(|_| !known),
                    );
                }
            }
            Company::Cgroup(group) => order(group, true, context),
        }
    }
    ends.iter().map(|candidate| context.ledger.victim(candidate)).collect()
}
