//! The live view for people: one page without scripts that reloads itself.

use std::fmt::{self, Display, Write as _};

use crate::view::contention::Blocked;
use crate::view::live::LiveState;
use crate::view::roles::{Job, Roles};
use crate::view::{Shown, View, host, short_owner};
use crate::words::labels::MODES;
use lock_core::store::text::{human, visible};

/// How many of the contended waits are on the page. The JSON has all of them.
const MAX_BLOCKED: usize = 20;

const STYLE: &str = include_str!("locks.css");

macro_rules! policy {
    () => {
        "default-src 'none'; style-src 'sha256-A17pU1sZN/XjDMbX/mGgdx2oJTDtMr8LQB9numiJ4Vs='; base-uri 'none'; form-action 'none'"
    };
}

/// The `Content-Security-Policy` for [`MetricsHandle::locks_html`](crate::MetricsHandle::locks_html): no file is
/// loaded, and no script runs, whatever a key contains.
pub const LIVE_VIEW_CSP: &str = concat!(policy!(), "; frame-ancestors 'none'");

pub(super) fn page(view: &View) -> String {
    let mut page = String::with_capacity(4096 + view.rows.len() * 512);
    // Writing to a string never fails.
    let _ = write_page(&mut page, view);
    page
}

fn write_page(out: &mut String, view: &View) -> fmt::Result {
    let totals = &view.totals;
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta http-equiv=\"refresh\" content=\"2\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}Locks</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>Locks</h1>\n<p id=\"process\">of process {pid}{host}, at {time} UTC; reloads every 2 s</p>\n\
         <p id=\"scope\">{scope}</p>\n\
         <p id=\"summary\"><b class=\"{alarm}\" id=\"stuck-count\">{stuck} stuck</b> · \
         <span id=\"held-count\">{held} held</span> · <span id=\"waiting-count\">{waiting} waiting</span>{stand}</p>\n",
        policy = policy!(),
        scope = scope(view),
        title = if totals.stuck > 0 { format!("({} stuck) ", totals.stuck) } else { String::new() },
        pid = std::process::id(),
        host = host().map(|host| format!(" on {}", Shield(&host))).unwrap_or_default(),
        time = clock(view.at.to_unix_nanos() / 1_000_000_000),
        alarm = if totals.stuck > 0 { "stuck" } else { "fine" },
        stuck = totals.stuck,
        held = totals.held,
        waiting = totals.waiting,
        stand = if totals.candidates > 0 { format!(" · {} to lead", totals.candidates) } else { String::new() },
    )?;
    out.write_str(
        "<table id=\"locks\">\n<thead><tr><th>State</th><th>Key</th><th>Call site</th><th>For</th><th>Lease left</th>\
         <th>Owner, token</th><th>Waiters, or waits for</th></tr></thead>\n<tbody>\n",
    )?;
    for row in &view.rows {
        write_row(out, row)?;
    }
    out.write_str("</tbody>\n</table>\n")?;
    if view.rows.is_empty() {
        out.write_str("<p id=\"empty\">This process holds no lock and waits for none.</p>\n")?;
    }
    if view.hidden() > 0 {
        writeln!(out, "<p id=\"not-shown\">… and {} more, which hurt less</p>", view.hidden())?;
    }
    write_roles(out, &view.roles)?;
    write_contention(out, &view.contention)?;
    out.write_str("</body>\n</html>\n")
}

/// Writes a line for each role, and for each problem among locks inside locks.
fn write_roles(out: &mut String, roles: &Roles) -> fmt::Result {
    let mut lines = Vec::new();
    for (name, leads) in &roles.elections {
        let what = if *leads > 0 { "this process leads" } else { "this process is a candidate" };
        lines.push(format!("election {}: {what}", Shield(name)));
    }
    for Job { name, every, succeeded } in &roles.jobs {
        let every = every.map(|every| format!(", every {}", human(every))).unwrap_or_default();
        let last = succeeded.map_or_else(
            || "no run has succeeded in this process".to_owned(),
            |ago| format!("a run succeeded in this process {} ago", human(ago)),
        );
        let whole = "<code>lockctl jobs</code> says whether it is overdue";
        lines.push(format!("job {}{every}: {last}; {whole}", Shield(name)));
    }
    for (name, count) in &roles.inversions {
        lines.push(format!(
            "<b class=\"stuck\">lock order</b>: {} was taken under a lock that is also taken under it, times: {count}",
            Shield(name)
        ));
    }
    let [victim, member] = roles.deadlocks;
    if victim + member > 0 {
        lines.push(format!(
            "<b class=\"stuck\">deadlocks</b>: {victim} in which this process gave way, {member} in which it waited on"
        ));
    }
    if lines.is_empty() {
        return Ok(());
    }
    out.write_str("<ul id=\"roles\">\n")?;
    lines.iter().try_for_each(|line| writeln!(out, "<li>{line}</li>"))?;
    out.write_str("</ul>\n")
}

/// Explains what this page does not show.
fn scope(view: &View) -> String {
    let own = "Only what this process holds and waits for: <code>lockctl why KEY</code> asks the store who else does.";
    match view.scanned {
        None => own.to_owned(),
        Some(ago) => format!("{own} Its inspector saw the queues of the whole fleet {} ago.", human(ago)),
    }
}

/// Writes a line for each of the last contended waits.
fn write_contention(out: &mut String, contention: &[Blocked]) -> fmt::Result {
    if contention.is_empty() {
        return Ok(());
    }
    out.write_str("<h2>Last contended waits of this process</h2>\n<ul id=\"contention\">\n")?;
    for one in contention.iter().take(MAX_BLOCKED) {
        let (waited, held) = (Breakable(&one.site), Breakable(one.holder.site()));
        let process = one.holder.info.as_ref().map(|info| format!(" (pid {} on {})", info.pid, Shield(&info.host)));
        writeln!(
            out,
            "<li><bdi class=\"key\">{}</bdi>: {waited} waited for {held}{}, {}</li>",
            Shield(one.key.as_str()),
            process.unwrap_or_default(),
            one.said(),
        )?;
    }
    out.write_str("</ul>\n")
}

fn write_row(out: &mut String, Shown { live, trace_link, waiters, fleet_waiters }: &Shown) -> fmt::Result {
    let (key, state) = (live.key.as_str(), live.state());
    write!(
        out,
        "<tr data-key=\"{data}\" data-lock=\"{lock_data}\" data-state=\"{state}\" class=\"{state}\">\
         <td data-label=\"State\"><b>{state}</b>{mode}</td>\
         <td data-label=\"Key\"><bdi class=\"key\">{key}</bdi><small>{lock}</small></td>\
         <td data-label=\"Call site\"><bdi class=\"site\">{site}</bdi>{trace}</td><td data-label=\"For\">{age}</td>",
        mode = match (live.mode, live.permits) {
            (mode, _) if mode == MODES[0] => String::new(),
            (_, permits @ 2..) => format!("<small>{permits} permits</small>"),
            (mode, _) => format!("<small>{mode}</small>"),
        },
        data = Attribute(key),
        lock_data = Attribute(&live.lock),
        key = Shield(key),
        lock = Shield(&live.lock),
        site = Breakable(&live.site),
        trace = Trace(live.trace_id.as_deref(), trace_link.as_deref()),
        age = human(live.age),
    )?;
    match &live.state {
        LiveState::Held { token, owner, lease_left, stuck_after, stuck, reentrant, fenced } => {
            let left = if lease_left.is_zero() { "over, not renewed".to_owned() } else { human(*lease_left) };
            let mut note = String::new();
            if let Some(fleet) = fleet_waiters {
                let processes = if *fleet == 1 { "process" } else { "processes" };
                write!(note, "<small>here; {fleet} {processes} in the queue of the fleet</small>")?;
            }
            if *stuck {
                let command = lockctl(key);
                if *fenced {
                    note.push_str("<small>its writes are fenced</small>");
                }
                write!(note, "<small>stuck after {}; ask</small>", human(stuck_after.unwrap_or_default()))?;
                write!(note, "<code>{}</code>", Shield(&command))?;
            }
            if *reentrant {
                note.push_str("<small>inside another hold of its task</small>");
            }
            writeln!(
                out,
                "<td data-label=\"Lease left\">{left}</td>\
                 <td data-label=\"Owner, token\">{owner}…<small>{token}</small></td>\
                 <td data-label=\"Waiters\">{waiters}{note}</td></tr>",
                owner = Shield(owner),
            )
        }
        LiveState::Waiting { waits_for } => {
            out.write_str("<td class=\"none\">–</td><td class=\"none\">–</td>")?;
            out.write_str("<td data-label=\"Waits for\">")?;
            match waits_for {
                None => out.write_str("its turn")?,
                Some(holder) => {
                    write!(out, "<bdi class=\"site\">{}</bdi>", Breakable(holder.site()))?;
                    if let Some(info) = &holder.info {
                        write!(out, "<small>pid {} on {}</small>", info.pid, Shield(&info.host))?;
                    }
                    if let Some(owner) = short_owner(holder) {
                        write!(out, "<small>owner {owner}…</small>")?;
                    }
                }
            }
            out.write_str("</td></tr>\n")
        }
    }
}

/// Writes the trace of a row, as a link if a link is set.
struct Trace<'a>(Option<&'a str>, Option<&'a str>);

impl Display for Trace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(None, _) => Ok(()),
            Self(Some(id), None) => write!(f, "<small>trace {id}</small>"),
            Self(Some(id), Some(link)) => write!(
                f,
                "<small><a href=\"{link}\" rel=\"noopener noreferrer\">trace {short}…</a></small>",
                link = Attribute(link),
                short = &id[..8],
            ),
        }
    }
}

/// Returns the shell command that explains a key.
fn lockctl(key: &str) -> String {
    format!("lockctl why '{}'", key.replace('\'', "'\\''"))
}

/// Writes the time of day.
fn clock(unix_seconds: u64) -> String {
    let seconds = unix_seconds % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Escapes foreign text as text of the page.
struct Shield<'a>(&'a str);

impl Display for Shield<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(f, visible(self.0).chars())
    }
}

/// Writes a call site, which may be broken only between its parts.
struct Breakable<'a>(&'a str);

impl Display for Breakable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(end) = rest.find("::").map(|at| at + 2).or_else(|| rest.find('/').map(|at| at + 1)) {
            let (part, after) = rest.split_at(end);
            write!(f, "{}<wbr>", Shield(part))?;
            rest = after;
        }
        write!(f, "{}", Shield(rest))
    }
}

/// Escapes foreign text as the value of an attribute. The exact text is kept.
struct Attribute<'a>(&'a str);

impl Display for Attribute<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(f, self.0.chars())
    }
}

fn escape(f: &mut fmt::Formatter<'_>, text: impl Iterator<Item = char>) -> fmt::Result {
    for c in text {
        match c {
            '&' => f.write_str("&amp;")?,
            '<' => f.write_str("&lt;")?,
            '>' => f.write_str("&gt;")?,
            '"' => f.write_str("&quot;")?,
            '\'' => f.write_str("&#39;")?,
            '`' => f.write_str("&#96;")?,
            // HTML has no named reference for this character.
            '\0' => f.write_char('\u{fffd}')?,
            c if c.is_control() => write!(f, "&#{};", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Attribute, Shield, clock};

    #[test]
    fn text_of_others_stays_text() {
        let evil = "<script>alert('1')</script>&\"\u{202e}\n\0";
        let shown = Shield(evil).to_string();
        assert_eq!(shown, "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;\\u{202e}\\n\\u{0}");
        let attribute = Attribute(evil).to_string();
        assert!(!attribute.contains(['<', '>', '"', '\'', '\n', '\0']), "{attribute}");
        assert!(attribute.ends_with("&quot;\u{202e}&#10;\u{fffd}"), "{attribute}");
    }

    #[test]
    fn the_time_of_the_day() {
        assert_eq!(clock(0), "00:00:00");
        assert_eq!(clock(1_786_870_923), "09:02:03");
    }
}
