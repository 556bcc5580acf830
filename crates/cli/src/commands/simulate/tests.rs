use super::{Arguments, run};
use crate::exit::{Exit, Failure};
use std::{fs, path::PathBuf};

const TRACE: &str = r#"{"begin":{"version":1,"at":0,"page_size":4096,"cpus":2}}
{"list":[{"pid":7,"start_ns":1,"uid":1000,"usage":2000}]}
{"look":{"at":0,"mem_available":40,"anon":960,"swap_total":0}}
"#;

fn told(trace: &str, config: Option<&str>) -> Result<String, Failure> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let config = config.map(|text| path("plimsoll.toml", text));
    let mut out = Vec::new();
    let exit = run(&Arguments { trace: path("trace", trace), config, json: false }, &mut out)?;
    assert_eq!(exit, Exit::Done);
    Ok(String::from_utf8(out).unwrap())
}

fn refused(trace: &str, config: Option<&str>) -> String {
    match told(trace, config) {
        Err(Failure::Told { exit: Exit::Failed, message }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_configuration_decides_otherwise() {
    assert!(told(TRACE, None).unwrap().contains("would be first"), "a spike is waited for");
    let at_once = told(TRACE, Some("[machine]\nspike_ms = 0\n")).unwrap();
    assert!(at_once.contains("SIGKILL to process 7"), "{at_once}");
    let never = "[machine]\nnotice = false\nterm_memory = 1\nkill_memory = 1\n";
    assert!(told(TRACE, Some(never)).unwrap().contains("Nothing would have been done."));
}

#[test]
fn what_cannot_be_simulated_is_said_in_one_line() {
    for (trace, config, expected) in [
        ("", None, "begins with a line"),
        ("{\"look\":{\"at\":0}}\n", None, "line 1: a trace begins with a line"),
        ("{\"begin\":{\"version\":2,\"at\":0,\"page_size\":4096,\"cpus\":2}}", None, "version 2"),
        ("{\"begin\":{\"version\":1,\"at\":0,\"page_size\":4097,\"cpus\":2}}", None, "4097"),
        ("\u{1b}[2J", None, "line 1: "),
        (TRACE, Some("[machine]\nenabled = false\n"), "machine.enabled = false"),
        (TRACE, Some("[machine]\nterm_memry = 1\n"), "term_memry"),
    ] {
        let message = refused(trace, config);
        assert!(message.contains(expected) && !message.contains('\n'), "{message}");
    }
}
