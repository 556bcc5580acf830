//! What travels is what the interface's description says: field by field, both ways.

use super::{
    dialogue,
    fake::{ALICE, Fake},
    peer::Peer,
};
use plimsoll_api::message::{DESCRIPTION, INTERFACE};
use plimsoll_policy::units::Uid;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use varlink_parser::{IDL, VStruct, VStructOrEnum, VType, VTypeExt};

fn described() -> IDL<'static> {
    IDL::try_from(DESCRIPTION).unwrap_or_else(|error| panic!("{error}"))
}

/// Every way in which `value` is not of the type described.
fn misfits(idl: &IDL<'_>, at: &str, vtype: &VTypeExt<'_>, value: &Value, found: &mut Vec<String>) {
    match vtype {
        VTypeExt::Option(_) if value.is_null() => {}
        VTypeExt::Option(inner) => misfits(idl, at, inner, value, found),
        VTypeExt::Array(inner) => match value.as_array() {
            Some(items) => items.iter().for_each(|item| misfits(idl, &format!("{at}[]"), inner, item, found)),
            None => found.push(format!("{at} is no list")),
        },
        VTypeExt::Dict(inner) => match value.as_object() {
            Some(items) => {
                items.values().for_each(|item| misfits(idl, &format!("{at}{{}}"), inner, item, found))
            }
            None => found.push(format!("{at} is no map")),
        },
        VTypeExt::Plain(plain) => {
            let fits = match plain {
                VType::Bool => value.is_boolean(),
                VType::Int => value.is_i64() || value.is_u64(),
                VType::Float => value.is_number(),
                VType::String => value.is_string(),
                VType::Object => value.is_object(),
                VType::Enum(_) => false,
                VType::Struct(inner) => return misfits_in(idl, at, inner, value, found),
                VType::Typename(name) => match &idl.typedefs[name].elt {
                    VStructOrEnum::VStruct(inner) => return misfits_in(idl, at, inner, value, found),
                    VStructOrEnum::VEnum(_) => false,
                },
            };
            if !fits {
                found.push(format!("{at} is {value}"));
            }
        }
    }
}

fn misfits_in(idl: &IDL<'_>, at: &str, described: &VStruct<'_>, value: &Value, found: &mut Vec<String>) {
    let Some(fields) = value.as_object() else { return found.push(format!("{at} is no structure")) };
    let names: BTreeSet<_> = described.elts.iter().map(|field| field.name).collect();
    found.extend(
        fields
            .keys()
            .filter(|key| !names.contains(key.as_str()))
            .map(|key| format!("{at}.{key} is not described")),
    );
    for field in &described.elts {
        match fields.get(field.name) {
            Some(value) => misfits(idl, &format!("{at}.{}", field.name), &field.vtype, value, found),
            None => found.push(format!("{at}.{} is missing", field.name)),
        }
    }
}

fn reply(fake: &Fake, uid: Uid, method: &str, parameters: &Value) -> Value {
    let request = json!({"method": format!("{INTERFACE}.{method}"), "parameters": parameters}).to_string();
    let (reply, _) =
        dialogue::answer(fake, Peer { uid, owner: uid, pid: None }, dialogue::read(request.as_bytes()));
    serde_json::from_slice(reply.split_last().unwrap().1).unwrap()
}

/// One call of each method in which every optional parameter is given at least once.
fn calls() -> Vec<(&'static str, Value)> {
    vec![
        ("Status", json!({})),
        ("ShowLimits", json!({})),
        ("ShowLimits", json!({"who": "default"})),
        ("ShowProcesses", json!({"who": "user:60001", "most": 1})),
        (
            "SetLimit",
            json!({"who": "user:60001", "hard": "1G", "soft": "512M", "action": "term", "now": false}),
        ),
        (
            "StartJob",
            json!({"name": "build", "hard": "1G", "soft": "512M", "action": "term", "reserve": "1G"}),
        ),
        ("ClearLimit", json!({"who": "user:60001"})),
        ("History", json!({"since": "2026-01-01T00:00:00Z", "before_id": 9, "limit": 1})),
        ("ShowProtection", json!({"files": 5})),
        ("SetProtection", json!({"settings": ["clean_min_ratio=20", "clean_low_ratio="]})),
        ("Expedite", json!({"pid": 7, "start_ns": 5})),
        ("AwaitIncident", json!({"after_id": 0, "within_ms": 0, "near": []})),
        ("GetIncident", json!({"id": 1})),
        ("GetIncident", json!({"pid": 4000 + ALICE.0})),
    ]
}

#[test]
fn every_reply_is_what_the_description_says() {
    let idl = described();
    let fake = Fake::new();
    for (method, parameters) in calls() {
        let reply = reply(&fake, Uid(0), method, &parameters);
        assert_eq!(reply.get("error"), None, "{method} {parameters}");
        let mut found = Vec::new();
        misfits_in(&idl, method, &idl.methods[method].output, &reply["parameters"], &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn every_parameter_described_is_understood() {
    let idl = described();
    for (name, method) in &idl.methods {
        let given: BTreeSet<String> = calls()
            .into_iter()
            .filter(|(called, _)| called == name)
            .flat_map(|(_, parameters)| parameters.as_object().unwrap().keys().cloned().collect::<Vec<_>>())
            .collect();
        let described: BTreeSet<String> =
            method.input.elts.iter().map(|field| field.name.to_owned()).collect();
        assert_eq!(given, described, "{name}");
    }
}

#[test]
fn every_error_sent_is_described() {
    let idl = described();
    let fake = Fake::new();
    let refused = [
        reply(&fake, ALICE, "SetLimit", &json!({"who": "default", "hard": "1G"})),
        reply(&fake, ALICE, "SetLimit", &json!({"who": "default", "hard": "12Q"})),
        reply(&fake, ALICE, "GetIncident", &json!({"id": 99})),
        reply(&fake, ALICE, "SetProtection", &json!({"settings": ["clean_min_ratio=20"]})),
        reply(&fake, Uid(0), "SetProtection", &json!({"settings": ["clean_min_ratio=101"]})),
        serde_json::from_slice(dialogue::busy("busy").split_last().unwrap().1).unwrap(),
    ];
    for reply in refused {
        let name = reply["error"].as_str().unwrap().strip_prefix("io.plimsoll.").unwrap();
        let mut found = Vec::new();
        misfits_in(&idl, name, &idl.errors[name].parm, &reply["parameters"], &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }
}
