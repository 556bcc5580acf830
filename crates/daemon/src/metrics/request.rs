//! What a client asks for: HTTP/1, as far as a scrape needs it.

/// The longest request, in bytes: a scraper sends some hundreds.
pub(super) const REQUEST_BYTES_MAX: usize = 8 << 10;

/// The most header lines.
const HEADERS_MAX: usize = 32;

/// What is to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The page.
    Metrics,
    /// Nothing but a status line, and what it allows.
    Refusal(&'static str),
}

/// Reads a request as far as it has come; `None`: it goes on.
pub(super) fn answer_to(request: &[u8]) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if request.len() < REQUEST_BYTES_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Some(Answer::Refusal("431 Request Header Fields Too Large"));
        }
        Err(_) => return Some(Answer::Refusal("400 Bad Request")),
    }
    let path = parsed.path.and_then(|path| path.split('?').next());
    Some(match (parsed.method, path) {
        (Some("GET"), Some("/metrics")) => Answer::Metrics,
        (Some("GET"), _) => Answer::Refusal("404 Not Found"),
        _ => Answer::Refusal("405 Method Not Allowed"),
    })
}

/// A whole response, after which the connection is closed.
pub(super) fn response(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nAllow: GET\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_can_be_asked_for() {
        for (request, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Some(Answer::Metrics)),
            ("GET /metrics?name=x HTTP/1.0\r\n\r\n", Some(Answer::Metrics)),
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n", None),
            ("", None),
            ("GET / HTTP/1.1\r\n\r\n", Some(Answer::Refusal("404 Not Found"))),
            ("GET /metrics/.. HTTP/1.1\r\n\r\n", Some(Answer::Refusal("404 Not Found"))),
            ("POST /metrics HTTP/1.1\r\n\r\n", Some(Answer::Refusal("405 Method Not Allowed"))),
            ("\u{0}\u{1}\u{2}", Some(Answer::Refusal("400 Bad Request"))),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some(Answer::Refusal("400 Bad Request"))),
        ] {
            assert_eq!(answer_to(request.as_bytes()), expected, "{request:?}");
        }
    }

    #[test]
    fn a_request_without_end_is_refused() {
        let too_large = Some(Answer::Refusal("431 Request Header Fields Too Large"));
        let endless = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(REQUEST_BYTES_MAX));
        assert_eq!(answer_to(endless.as_bytes()), too_large);
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(answer_to(many.as_bytes()), too_large);
    }
}
