//! A disguise makes a real server behave like a service that only speaks the protocol of Redis.

mod profile;
mod resp;

use std::collections::VecDeque;

pub use profile::RedisRelative;
pub(crate) use resp::request;

use profile::Verdict;

/// The error of a transaction of which a command was refused.
const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

/// One connection to a relative. Each request reaches the server as exactly one command. Replies therefore stay in order, and
/// the reply to a refused request is replaced by the refusal.
#[derive(Debug)]
pub(crate) struct Disguise {
    relative: RedisRelative,
    requests: Vec<u8>,
    replies: Vec<u8>,
    due: VecDeque<Due>,
    /// The open transaction: whether one of its commands was refused, and the first slot that it used.
    transaction: Option<(bool, Option<u16>)>,
}

/// The fate of the next reply of the server.
#[derive(Debug)]
enum Due {
    Pass,
    Instead(String),
    Edited(fn(&str) -> String),
}

impl Disguise {
    pub(crate) fn new(relative: RedisRelative) -> Self {
        Self { relative, requests: Vec::new(), replies: Vec::new(), due: VecDeque::new(), transaction: None }
    }

    /// Returns what the server receives for bytes of the client.
    pub(crate) fn asked(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.requests.extend_from_slice(bytes);
        let mut passed = Vec::new();
        while let Some(length) = resp::frame(&self.requests) {
            let request: Vec<u8> = self.requests.drain(..length).collect();
            passed.extend(self.ask(&request));
        }
        passed
    }

    fn ask(&mut self, request: &[u8]) -> Vec<u8> {
        let words = resp::words(request);
        let name = words.first().map(|name| String::from_utf8_lossy(name).to_ascii_uppercase()).unwrap_or_default();
        let instead = |text: &str| Due::Instead(format!("-{text}\r\n"));
        match (name.as_str(), self.transaction) {
            ("EXEC", Some((true, _))) => {
                self.transaction = None;
                self.due.push_back(instead(ABORTED));
                return resp::request(&["DISCARD"]);
            }
            ("EXEC" | "DISCARD", _) => self.transaction = None,
            ("MULTI", None) => self.transaction = Some((false, None)),
            _ => {}
        }
        let mut verdict = self.relative.judge(&name, &words);
        if let Some((_, used)) = &mut self.transaction
            && self.relative.keeps_to_a_slot()
            && let ("SET" | "XADD", Some(key)) = (name.as_str(), words.get(1))
            && *used.get_or_insert(resp::slot(key)) != resp::slot(key)
        {
            verdict = Verdict::Refused("CROSSSLOT Keys in request don't hash to the same slot".to_owned());
        }
        match verdict {
            Verdict::Refused(text) => {
                if let Some((refused, _)) = &mut self.transaction {
                    *refused = true;
                }
                self.due.push_back(instead(&text));
                return resp::request(&["PING"]);
            }
            // Its answers come as messages.
            _ if name.ends_with("SUBSCRIBE") => {}
            Verdict::Passed => self.due.push_back(Due::Pass),
            Verdict::Edited(edit) => self.due.push_back(Due::Edited(edit)),
            Verdict::Renamed(name) => {
                self.due.push_back(Due::Pass);
                return resp::request(&[&[name.as_bytes().to_vec()], &words[1..]].concat());
            }
            Verdict::Answered(text) => {
                self.due.push_back(Due::Instead(text.to_owned()));
                return resp::request(&["PING"]);
            }
        }
        request.to_vec()
    }

    /// Returns what the client receives for bytes of the server.
    pub(crate) fn answered(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.replies.extend_from_slice(bytes);
        let mut passed = Vec::new();
        while let Some(length) = resp::frame(&self.replies) {
            let reply: Vec<u8> = self.replies.drain(..length).collect();
            let is_message = reply[0] == b'>';
            match if is_message { None } else { self.due.pop_front() } {
                None | Some(Due::Pass) => passed.extend(reply),
                Some(Due::Instead(text)) => passed.extend(text.into_bytes()),
                Some(Due::Edited(edit)) => {
                    let start = reply.windows(2).position(|end| end == b"\r\n").map_or(0, |line| line + 2);
                    let text = String::from_utf8_lossy(&reply[start..length - 2]).into_owned();
                    passed.extend(resp::string(edit(&text).as_bytes()));
                }
            }
        }
        passed
    }
}
