//! The command that writes the dashboards, alerts and runbooks of this version.

use std::fmt::Write as _;
use std::io;

use lock_core::store::text::visible;
use lock_dashboards::{Form, Installation, Settings, State};
use serde_json::{Value, json};

use crate::args::Dashboards;
use crate::end::{End, complain};
use crate::output::Output;

pub(crate) fn dashboards(wanted: &Dashboards, out: &mut Output) -> io::Result<End> {
    let Some(to) = &wanted.to else {
        out.line(Settings::list().trim_end())?;
        return Ok(End::Ok);
    };
    let mut settings = Settings::default();
    for pair in &wanted.set {
        if let Err(why) = settings.set(pair) {
            return said(out, End::Usage, &why);
        }
    }
    let form = Form::named(&wanted.form).unwrap_or(Form::Plain);
    let planned = match Installation::plan(to, form, &settings) {
        Ok(planned) => planned,
        Err(error) => return said(out, End::Unavailable, &format!("cannot read {error}")),
    };
    let changed: Vec<&str> = planned.changed().collect();
    if !changed.is_empty() && !wanted.force {
        let what = changed.join(", ");
        let why = format!(
            "nothing was written: this would undo a change in {what}; keep the change elsewhere, use --set for the \
             values of your fleet (see --settings), and write with --force"
        );
        return said(out, End::Refused, &why);
    }
    if let Err(error) = planned.write() {
        return said(out, End::Unavailable, &format!("cannot write {error}"));
    }
    if out.is_json() {
        let files: Vec<Value> =
            planned.files().map(|(name, state)| json!({ "file": name, "before": state.as_str() })).collect();
        let to = to.display().to_string();
        out.document(&json!({
            "version": Installation::VERSION, "to": to, "files": files, "left_over": planned.left_over(),
        }))?;
    } else {
        out.line(&text(&planned, form, &to.display().to_string()))?;
    }
    Ok(End::Ok)
}

fn said(out: &mut Output, end: End, why: &str) -> io::Result<End> {
    if out.is_json() {
        out.failure(why, end as u8)?;
    }
    complain(why);
    Ok(end)
}

fn text(planned: &Installation, form: Form, to: &str) -> String {
    let (mut text, mut same) = (String::new(), 0);
    for (name, state) in planned.files() {
        let what = match state {
            State::New => "wrote",
            State::Older => "wrote, in place of an older one,",
            State::Changed => "wrote, in place of a changed one,",
            State::Same => {
                same += 1;
                continue;
            }
        };
        let _ = writeln!(text, "{what} {name}");
    }
    for name in planned.left_over() {
        let _ = writeln!(text, "left {}, which this version does not write: remove it", visible(name));
    }
    let (all, version) = (planned.files().count(), Installation::VERSION);
    let _ = write!(
        text,
        "{all} files of version {version} are in {}, of which {same} were there already. {}",
        visible(to),
        form.next_step()
    );
    text
}
