use super::{Asked, Next, answer, asked, read};
use crate::api::{
    fake::{ALICE, Fake},
    peer::Peer,
};
use proptest::prelude::{any, prop_assert, proptest};
use serde_json::{Value, json};

const PEER: Peer = Peer { uid: ALICE, owner: ALICE, pid: None };

fn ask(request: &Value) -> (Value, Next) {
    let (reply, next) = answer(&*Fake::new(), PEER, read(request.to_string().as_bytes()));
    let (nul, json) = reply.split_last().unwrap();
    assert_eq!(*nul, 0);
    (serde_json::from_slice(json).unwrap(), next)
}

#[test]
fn the_service_describes_itself_and_our_interface() {
    let (info, _) = ask(&json!({"method": "org.varlink.service.GetInfo"}));
    assert_eq!(info["parameters"]["interfaces"], json!(["org.varlink.service", "io.plimsoll"]));
    let (reply, _) = ask(&json!({
        "method": "org.varlink.service.GetInterfaceDescription",
        "parameters": {"interface": "io.plimsoll"}
    }));
    let description = reply["parameters"]["description"].as_str().unwrap();
    assert!(description.contains("method SetLimit(") && description.contains("\ninterface io.plimsoll\n"));
    for parameters in [json!({"interface": "io.other"}), json!({"interface": 7}), json!({}), json!(null)] {
        let request =
            json!({"method": "org.varlink.service.GetInterfaceDescription", "parameters": parameters});
        assert_eq!(ask(&request).0["error"], "org.varlink.service.InvalidParameter");
    }
}

#[test]
fn what_is_not_there_is_said_in_varlinks_own_words() {
    for (method, error) in [
        ("io.plimsoll.Explode", "org.varlink.service.MethodNotFound"),
        ("org.varlink.service.Explode", "org.varlink.service.MethodNotFound"),
        ("io.other.Status", "org.varlink.service.InterfaceNotFound"),
        ("Status", "org.varlink.service.InterfaceNotFound"),
        ("", "org.varlink.service.InterfaceNotFound"),
        ("io.plimsoll.", "org.varlink.service.MethodNotFound"),
    ] {
        let (reply, next) = ask(&json!({"method": method}));
        assert_eq!((&reply["error"], next), (&json!(error), Next::Listen), "{method}");
    }
}

#[test]
fn what_is_not_varlink_is_answered_once_and_the_connection_closed() {
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let deep_inside = format!(r#"{{"method":"io.plimsoll.Status","parameters":{deep}}}"#);
    for request in ["", "hello", "[]", "{}", r#"{"method":7}"#, "\u{1b}[2J", &deep, &deep_inside] {
        let (reply, next) = answer(&*Fake::new(), PEER, read(request.as_bytes()));
        assert_eq!(next, Next::Close);
        let reply: Value = serde_json::from_slice(reply.split_last().unwrap().1).unwrap();
        assert_eq!(reply["error"], "io.plimsoll.Invalid");
        assert!(!reply["parameters"]["message"].as_str().unwrap().contains('\n'));
    }
}

#[test]
fn a_oneway_call_is_carried_out_and_not_answered() {
    let fake = Fake::new();
    let call =
        json!({"method": "io.plimsoll.ClearLimit", "oneway": true, "parameters": {"who": "user:60001"}});
    let (reply, next) = answer(&*fake, PEER, read(call.to_string().as_bytes()));
    assert_eq!((reply.len(), next), (0, Next::Listen));
    assert_eq!(fake.calls(), ["clear_limit user:60001 by 60001"]);
    let info = json!({"method": "org.varlink.service.GetInfo", "oneway": true});
    assert_eq!(answer(&*fake, PEER, read(info.to_string().as_bytes())).0.len(), 0);
}

#[test]
fn an_upgrade_is_refused_and_more_gets_its_one_reply() {
    let call = |flag: &str| ask(&json!({"method": "io.plimsoll.Status", flag: true})).0;
    assert_eq!(call("upgrade")["error"], "org.varlink.service.InvalidParameter");
    let reply = call("more");
    assert_eq!((&reply["continues"], &reply["parameters"]["daemon"]), (&Value::Null, &json!(true)));
}

#[test]
fn starts_and_the_turns_of_those_that_were_started_have_a_queue_of_their_own_and_nothing_else_has() {
    let of = |request: &Value, after: bool| asked(&read(request.to_string().as_bytes()), after);
    let start = json!({"method": "io.plimsoll.StartJob"});
    let turn = json!({"method": "io.plimsoll.ShowLimits", "parameters": {"who": "job:7"}});
    assert_eq!([of(&start, false), of(&start, true)], [Asked::Start; 2]);
    assert_eq!([of(&turn, false), of(&turn, true)], [Asked::Other, Asked::Turn]);
    for other in [
        json!({"method": "io.plimsoll.ShowLimits"}),
        json!({"method": "io.plimsoll.ShowLimits", "parameters": {"who": "user:1000"}}),
        json!({"method": "io.plimsoll.AwaitIncident", "parameters": {"who": "job:7"}}),
        json!({"method": "io.plimsoll.SetLimit", "parameters": {"who": "job:7", "hard": "1G"}}),
        json!({"method": "io.other.StartJob"}),
        json!({"method": "StartJob"}),
        json!(null),
    ] {
        assert_eq!([of(&other, false), of(&other, true)], [Asked::Other; 2], "{other}");
    }
}

proptest! {
    #[test]
    fn any_bytes_get_one_well_formed_answer(request in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (reply, _) = answer(&*Fake::new(), PEER, read(&request));
        let (nul, json) = reply.split_last().unwrap();
        prop_assert!(*nul == 0 && serde_json::from_slice::<Value>(json).is_ok());
    }

    #[test]
    fn any_parameters_get_an_answer(
        method in "(Status|ShowLimits|SetLimit|ClearLimit|History|GetIncident)",
        key in "(who|hard|soft|action|now|since|before_id|limit|id|pid)",
        text in ".{0,40}",
        number in any::<i64>(),
    ) {
        for value in [json!(text), json!(number), json!(null), json!([text]), json!({"x": number})] {
            let request = json!({"method": format!("io.plimsoll.{method}"), "parameters": {&key: value}});
            let (reply, next) = answer(&*Fake::new(), PEER, read(request.to_string().as_bytes()));
            prop_assert!(reply.len() > 1 && next == Next::Listen);
        }
    }
}
