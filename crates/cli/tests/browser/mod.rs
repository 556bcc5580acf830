//! A real browser without a screen, told what to do over a pipe (the DevTools protocol, Chromium).

use super::support::skip;
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// What it may be called; the first is Debian's smallest.
const NAMES: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];

/// With the pipe on descriptors 3 and 4, where it belongs, and ended after two minutes whatever happens.
const START: &str = "exec timeout --kill-after=1 120 \"$0\" --headless --no-sandbox --disable-gpu --remote-debugging-pipe \
     --user-data-dir=\"$1\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";

/// The text that can be read worst on what is behind it: how much it contrasts (WCAG 2.2, 1.4.3), and what it says.
const WORST_CONTRAST: &str = r#"(() => {
  const parts = color => color.match(/[\d.]+/g).map(Number);
  const light = color => parts(color).slice(0, 3).map(x => x / 255)
    .map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const clear = color => { const all = parts(color); return all.length > 3 && all[3] === 0; };
  const behind = one => {
    for (; one; one = one.parentElement)
      if (!clear(getComputedStyle(one).backgroundColor)) return getComputedStyle(one).backgroundColor;
    return "rgb(255, 255, 255)";
  };
  const texts = [...document.querySelectorAll("main *:not(title, desc)")]
    .filter(one => [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
  return texts.map(one => {
    const style = getComputedStyle(one);
    const two = [light(one.closest("svg") ? style.fill : style.color), light(behind(one))].sort((a, b) => b - a);
    return [(two[0] + 0.05) / (two[1] + 0.05), one.textContent.trim()];
  }).reduce((worst, one) => one[0] < worst[0] ? one : worst, [22, ""]);
})()"#;

/// A browser with one page.
#[derive(Debug)]
pub(crate) struct Browser {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    _profile: tempfile::TempDir,
    page: String,
    calls: u64,
    /// Whom the page asked for something, itself first.
    pub(crate) requests: Vec<String>,
    has_loaded: bool,
}

impl Browser {
    /// `None`: there is none here, which is said.
    pub(crate) fn start() -> Option<Self> {
        let is_there = |name: &&&str| {
            Command::new("sh").args(["-c", "command -v \"$0\" >/dev/null", name]).status().unwrap().success()
        };
        let Some(name) = NAMES.iter().find(is_there) else {
            skip(format_args!("no browser is here: {}", NAMES.join(", ")));
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let mut process = Command::new("sh")
            .args(["-c", START, name])
            .arg(profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut browser = Self {
            process,
            to,
            from,
            _profile: profile,
            page: String::new(),
            calls: 0,
            requests: Vec::new(),
            has_loaded: false,
        };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attached = browser
            .call("Target.attachToTarget", &json!({ "targetId": target["targetId"], "flatten": true }));
        browser.page = attached["sessionId"].as_str().unwrap().to_owned();
        browser.call("Network.enable", &json!({}));
        browser.call("Page.enable", &json!({}));
        Some(browser)
    }

    /// Has it done, and gives what comes of it.
    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": parameters });
        if !self.page.is_empty() {
            message["sessionId"] = self.page.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut answer = self.hear();
            if answer["id"] == self.calls {
                assert_eq!(answer["error"], Value::Null, "{method}");
                return answer["result"].take();
            }
        }
    }

    fn hear(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser ended");
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        match message["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                self.requests.push(message["params"]["request"]["url"].as_str().unwrap().to_owned());
            }
            Some("Page.loadEventFired") => self.has_loaded = true,
            Some(_) | None => {}
        }
        message
    }

    /// Opens a file, as wide as this.
    pub(crate) fn open(&mut self, file: &Path, width: u32) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": true });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        self.has_loaded = false;
        self.call("Page.navigate", &json!({ "url": format!("file://{}", file.display()) }));
        while !self.has_loaded {
            self.hear();
        }
    }

    /// Shows it on this medium (`print`; empty: a screen), to somebody who likes it `light` or `dark`.
    pub(crate) fn show(&mut self, medium: &str, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "media": medium, "features": features }));
    }

    /// What an expression comes to on the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true });
        self.call("Runtime.evaluate", &asked)["result"]["value"].take()
    }

    /// The least contrast of any text, and which it is of.
    pub(crate) fn worst_contrast(&mut self) -> (f64, String) {
        let worst = self.evaluate(WORST_CONTRAST);
        (worst[0].as_f64().unwrap(), worst[1].as_str().unwrap().to_owned())
    }

    /// As it is printed: a PDF, in base64.
    pub(crate) fn print(&mut self) -> String {
        self.call("Page.printToPDF", &json!({}))["data"].as_str().unwrap().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
