//! Tests how URLs are read, and the errors for wrong ones.

#[cfg(feature = "tls")]
use tokio_postgres::config::ChannelBinding;
use tokio_postgres::config::{Host, SslMode};

#[cfg(feature = "tls")]
use super::Authorities;
use super::Settings;

fn read(url: &str) -> lock_core::Result<Settings> {
    Settings::read_with(url, |_| None)
}

fn refused(url: &str) -> String {
    read(url).unwrap_err().to_string()
}

#[test]
fn a_url_names_servers_and_what_differs_from_the_defaults() {
    let plain = read("postgres://app:s3cret@db-1/shop").unwrap();
    assert_eq!(
        (&*plain.node, &*plain.schema, plain.commit, plain.migrate),
        ("db-1:5432/shop", "lock_core", "on", true)
    );
    let url = "postgresql://app:s3cret@db-1:6432,db-2:6433/shop?schema=locks&listen=db-1:5432&commit=remote_apply&migrate=never";
    let all = read(url).unwrap();
    assert_eq!(
        (&*all.node, &*all.schema, all.commit, all.migrate),
        ("db-1:6432,db-2:6433/shop", "locks", "remote_apply", false)
    );
    assert_eq!(all.listen.unwrap().get_ports(), [5432]);
}

#[test]
#[cfg(feature = "tls")]
fn an_authority_is_a_file_by_either_name() {
    for name in ["ca", "sslrootcert"] {
        let url = format!("postgres://h/d?sslmode=verify-full&{name}=/etc/our%20own%2Fca.pem");
        let file = Authorities::File("/etc/our own/ca.pem".into());
        assert_eq!(read(&url).unwrap().tls.authorities, Some(file));
    }
}

#[test]
fn what_cannot_be_read_is_not_repeated() {
    for (url, says) in [
        ("postgres://", "names no host"),
        ("postgres://u:s3cret@h/d?schema=S3cret", "small letters"),
        ("postgres://u:s3cret@h/d?schema=pg_s3", "small letters"),
        ("postgres://u:s3cret@h/d?s3cret=1", "not known"),
        ("postgres://u:s3cret@h/d?commit=s3cret", "not known"),
        ("postgres://u:s3cret@h/d?listen=s3:cret", "cannot be read"),
        ("postgres://u:s3?cret@h/d", "percent-encode"),
        ("postgres://u:s3cret@h:s3cret/d", "cannot be read"),
        ("postgres://u:s3cret@h/d?ca=s3%2", "cannot be read"),
        ("postgres://u:s3cret@h/d?ca=/s3.pem", "add sslmode=verify-full"),
        ("host=h password=s3cret", "cannot be read"),
    ] {
        let error = refused(url);
        assert!(error.contains(says) && !error.contains("s3"), "{url}: {error}");
    }
}

/// As hosting providers give them out, without their hosts.
#[test]
#[cfg(feature = "tls")]
fn urls_of_hosting_providers_are_honoured() {
    for (provider, url) in [
        ("Neon", "postgresql://u:p@ep-a-pooler.eu-2.aws.neon.tech/db?sslmode=require&channel_binding=require"),
        ("Neon, without SNI", "postgres://u:p@h/db?sslmode=require&options=endpoint%3Dep-a-123"),
        (
            "Supabase, its pooler",
            "postgres://postgres.ref:p@aws-0.pooler.supabase.com:6543/postgres?pgbouncer=true&sslmode=require",
        ),
        ("RDS", "postgres://u:p@a.rds.amazonaws.com:5432/db?sslmode=verify-full&sslrootcert=/etc/global-bundle.pem"),
        ("Azure", "postgres://u%40srv:p@srv.postgres.database.azure.com/db?sslmode=require"),
        ("Aiven", "postgres://avnadmin:p@pg-a.aivencloud.com:12691/defaultdb?sslmode=require"),
        (
            "Crunchy Bridge",
            "postgres://application:p@p.a.db.postgresbridge.com:5432/postgres?sslmode=verify-full&sslrootcert=team.pem",
        ),
        ("DigitalOcean", "postgresql://doadmin:p@db.ondigitalocean.com:25060/defaultdb?sslmode=require"),
        ("Cloud SQL, its socket", "postgres://u:p@/db?host=/cloudsql/project:region:instance"),
        (
            "Cloud SQL, its address",
            "postgres://u:p@10.1.2.3/db?sslmode=verify-ca&sslrootcert=ca.pem&sslcert=c.pem&sslkey=c.key",
        ),
        ("CockroachDB", "postgresql://u:p@h:26257/db?sslmode=verify-full&sslrootcert=system"),
        (
            "Patroni",
            "postgres://u:p@h1:5432,h2:5432/db?target_session_attrs=read-write&sslmode=disable&connect_timeout=2",
        ),
        (
            "libpq",
            "postgres://h/d?keepalives=1&keepalives_idle=30&keepalives_interval=5&keepalives_count=3&tcp_user_timeout=9000&gssencmode=disable\
             &application_name=shop&client_encoding=UTF8&sslsni=1&sslmode=disable&load_balance_hosts=disable",
        ),
    ] {
        let settings = read(url).unwrap_or_else(|error| panic!("{provider}: {error}"));
        let is_plain = url.contains("disable") || url.contains("/cloudsql/");
        let mode = if is_plain { SslMode::Disable } else { SslMode::Require };
        assert_eq!(settings.config.get_ssl_mode(), mode, "{provider}");
    }
    let neon =
        read("postgres://u:p@h/db?sslmode=require&channel_binding=require&listen=l:5432&options=-c%20a%3Db").unwrap();
    for config in [&neon.config, neon.listen.as_ref().unwrap()] {
        assert_eq!((config.get_channel_binding(), config.get_options()), (ChannelBinding::Require, Some("-c a=b")));
    }
}

#[test]
fn a_socket_is_named_in_either_place() {
    for url in ["postgres://u:p@/d?host=/run/pg&port=6432&sslmode=verify-full", "postgres://u:p@%2Frun%2Fpg:6432/d"] {
        let settings = read(url).unwrap();
        assert_eq!(settings.config.get_hosts(), [Host::Unix("/run/pg".into())], "{url}");
        assert_eq!(
            (settings.config.get_ports(), settings.config.get_ssl_mode()),
            (&[6432][..], SslMode::Disable),
            "{url}"
        );
    }
}

#[test]
fn a_parameter_that_cannot_be_honoured_is_named_and_its_value_is_not() {
    for (parameter, name, says) in [
        ("sslmode=prefer", "sslmode", "plain text"),
        ("sslmode=allow", "sslmode", "plain text"),
        ("sslmode=s3cret", "sslmode", "verify-full, verify-ca"),
        ("sslmode=verify-ca", "sslmode", "ca=FILE"),
        ("channel_binding=require", "channel_binding", "needs TLS"),
        ("channel_binding=s3cret", "channel_binding", "disable or prefer or require"),
        ("target_session_attrs=prefer-standby", "target_session_attrs", "a standby grants no locks"),
        ("target_session_attrs=read-only", "target_session_attrs", "a standby grants no locks"),
        ("host=/s3cret", "host", "names a host already"),
        ("port=5433", "port", "host:port"),
        ("connect_timeout=s3cret", "connect_timeout", "a whole number"),
        ("sslcert=/s3cret", "sslcert", "add sslmode=verify-full"),
        ("sslpassword=s3cret", "sslpassword", "without one"),
        ("gssencmode=require", "gssencmode", "GSSAPI"),
        ("service=s3cret", "service", "not read"),
        ("require_auth=s3cret", "require_auth", "channel_binding=require"),
        ("ssl=true", "ssl", "sslmode=verify-full"),
        ("connection_limit=5", "connection_limit", "leave it out"),
        ("schema=public", "schema", "one of its own"),
    ] {
        let error = refused(&format!("postgres://u:p@h/d?{parameter}"));
        let names = error.contains(&format!("{name}=")) && error.contains(says);
        assert!(names && !error.contains("s3"), "{parameter}: {error}");
    }
}

#[test]
fn a_new_line_is_no_part_of_a_url_and_quotes_are_a_mistake() {
    assert_eq!(&*read(" postgres://app@db-1/shop\r\n").unwrap().node, "db-1:5432/shop");
    for url in ["\"postgres://app@db-1/shop\"", "'postgres://app@db-1/shop'\n", "postgres://app@db-1/shop\""] {
        assert!(refused(url).contains("quotes"), "{url}");
    }
}

#[test]
#[cfg(feature = "tls")]
fn variables_add_tls_where_the_url_does_not_speak_of_it() {
    let with = |url: &str, mode: &'static str| {
        Settings::read_with(url, move |name| match name {
            "PGSSLMODE" => Some(mode.to_owned()),
            "PGSSLROOTCERT" => Some("/etc/50%.pem".to_owned()),
            _ => None,
        })
    };
    let settings = with("postgres://h/d", "verify-full").unwrap();
    assert_eq!(settings.config.get_ssl_mode(), SslMode::Require);
    assert_eq!(settings.tls.authorities, Some(Authorities::File("/etc/50%.pem".into())));
    for (url, mode) in [("postgres://h/d?sslmode=disable", "require"), ("postgres://h/d", "prefer")] {
        assert_eq!(with(url, mode).unwrap().config.get_ssl_mode(), SslMode::Disable, "{url} {mode}");
    }
    let error = with("postgres://h/d", "s3cret").unwrap_err().to_string();
    assert!(error.contains("PGSSLMODE") && !error.contains("s3"), "{error}");
}
