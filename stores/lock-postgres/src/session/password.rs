//! The password where the URL has none: from `PGPASSWORD`, or from a password file, as PostgreSQL's own clients have it.
//!
//! Both are read again for each connection, so a password that is changed is known without a restart.

use std::path::{Path, PathBuf};

use lock_core::{LockError, Result};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::url::Settings;

/// Returns the settings of a connection with a password, if there is one anywhere.
pub(super) fn added(config: &Config, settings: &Settings) -> Result<Config> {
    let mut config = config.clone();
    if config.get_password().is_none() {
        let found = match variable("PGPASSWORD") {
            None => in_file(&config, settings)?,
            found => found,
        };
        found.iter().for_each(|password| {
            config.password(password);
        });
    }
    Ok(config)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn in_file(config: &Config, settings: &Settings) -> Result<Option<String>> {
    let named = settings.password_file.clone().or_else(|| variable("PGPASSFILE").map(PathBuf::from));
    let is_named = named.is_some();
    let Some(file) = named.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".pgpass"))) else { return Ok(None) };
    let refused =
        |why: String| Err(LockError::misconfigured(format!("the password file {} is not used: {why}", file.display())));
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        // This file need not exist.
        Err(_) if !is_named => return Ok(None),
        Err(error) => return refused(error.to_string()),
    };
    if is_open_to_others(&file) {
        return if is_named { refused("others may read it; run chmod 600 on it".to_owned()) } else { Ok(None) };
    }
    Ok(find(&text, config))
}

#[cfg(unix)]
fn is_open_to_others(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|about| about.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_open_to_others(_: &Path) -> bool {
    false
}

/// Returns the password of the first line `host:port:database:user:password` that fits the first host.
fn find(text: &str, config: &Config) -> Option<String> {
    let host = match config.get_hosts().first()? {
        Host::Tcp(name) => name.clone(),
        // That of the server's own directory has this name, but who named the directory means it.
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    };
    let port = config.get_ports().first().unwrap_or(&5432).to_string();
    let user = config.get_user()?;
    let wanted = [&*host, &*port, config.get_dbname().unwrap_or(user), user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let fits =
            fields.len() >= 5 && wanted.iter().zip(&fields).all(|(wanted, field)| field == "*" || field == wanted);
        // The last one ends with the line.
        fits.then(|| fields[4..].join(":"))
    })
}

/// Splits a line at its colons, of which `\:` is none.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut letters) = (vec![String::new()], line.chars());
    while let Some(letter) = letters.next() {
        match (letter, fields.last_mut()) {
            (':', _) => fields.push(String::new()),
            ('\\', Some(field)) => field.extend(letters.next()),
            (letter, Some(field)) => field.push(letter),
            (_, None) => {}
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use tokio_postgres::Config;

    use super::find;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let text =
            "# db-1:5432:shop:app:comment\ndb-1:5432:shop:other:1\ndb-1:*:shop:app:a\\:b\\\\c\n*:*:*:app:any\n::";
        let of = |url: &str| find(text, &url.parse::<Config>().unwrap());
        assert_eq!(of("postgres://app@db-1/shop").as_deref(), Some("a:b\\c"));
        assert_eq!(of("postgres://app@db-2/shop").as_deref(), Some("any"));
        assert_eq!(of("postgres://other@db-1/shop").as_deref(), Some("1"));
        assert_eq!(of("postgres://other@db-1:5433/shop"), None);
    }
}
