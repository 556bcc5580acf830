//! `[[rules]]`: preferences and protection, as they are written.

use plimsoll_policy::{
    preference::{AVOIDED, Effect, PREFERRED, Pattern, Rule, Scope},
    selection::Weight,
    units::Uid,
};
use serde::{Deserialize, Deserializer, de::Error as _};

/// The most rules: each is held against each process that may be selected.
pub(super) const RULES_MAX: usize = 256;

/// One value, or a list of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "one value or a list of values")]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Verb {
    Prefer,
    Avoid,
    Never,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    effect: Verb,
    weight: Option<i64>,
    exe: Option<OneOrMany<String>>,
    unit: Option<OneOrMany<String>>,
    cgroup: Option<OneOrMany<String>>,
    cmdline: Option<OneOrMany<String>>,
    comm: Option<OneOrMany<String>>,
    uid: Option<OneOrMany<u32>>,
    scope: Option<Scope>,
}

/// A rule with everything checked.
#[derive(Debug, Clone)]
pub(super) struct CheckedRule(pub(super) Rule);

impl<'de> Deserialize<'de> for CheckedRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = RawRule::deserialize(deserializer)?;
        let effect = effect(raw.effect, raw.weight).map_err(D::Error::custom)?;
        let patterns = |texts: Option<OneOrMany<String>>| -> Result<Vec<Pattern>, D::Error> {
            let texts = texts.map(OneOrMany::into_vec).unwrap_or_default();
            texts.iter().map(|text| Pattern::new(text).map_err(D::Error::custom)).collect()
        };
        let rule = Rule {
            exe: patterns(raw.exe)?,
            unit: patterns(raw.unit)?,
            cgroup: patterns(raw.cgroup)?,
            cmdline: patterns(raw.cmdline)?,
            comm: patterns(raw.comm)?,
            uid: raw.uid.map(OneOrMany::into_vec).unwrap_or_default().into_iter().map(Uid).collect(),
            effect,
            scope: raw.scope,
        };
        rule.validate().map_err(|error| D::Error::custom(format!("the rule is refused: {error}")))?;
        Ok(Self(rule))
    }
}

/// The effect of a verb and a weight in percent.
fn effect(verb: Verb, percent: Option<i64>) -> Result<Effect, String> {
    let given = |percent: i64| {
        let permille = percent.checked_mul(10).and_then(|permille| u16::try_from(permille).ok());
        permille
            .and_then(Weight::from_permille)
            .ok_or_else(|| format!("weight {percent} is out of range; allowed is 1 to 6553 percent"))
    };
    let weight = percent.map(given).transpose()?;
    match (verb, weight) {
        (Verb::Never, Some(_)) => Err("'never' takes no weight: leave it out".to_owned()),
        (Verb::Never, None) => Ok(Effect::Never),
        (Verb::Prefer, Some(weight)) if weight <= Weight::NEUTRAL => {
            Err("'prefer' needs a weight above 100 percent".to_owned())
        }
        (Verb::Avoid, Some(weight)) if weight >= Weight::NEUTRAL => {
            Err("'avoid' needs a weight under 100 percent".to_owned())
        }
        (Verb::Prefer, weight) => Ok(Effect::Weight(weight.unwrap_or(PREFERRED))),
        (Verb::Avoid, weight) => Ok(Effect::Weight(weight.unwrap_or(AVOIDED))),
    }
}
