//! Examines whether the database is as the store needs it: what works, what is lost, what to set.

mod facts;
mod horizon;
mod replication;
mod server;
mod settings;
mod tables;
mod waiters;

use lock_store::{Doctor, Finding};
use tokio::sync::oneshot;
use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;

use crate::doctor::facts::{Facts, without};
use crate::session::Session;
use crate::store::PostgresStore;
use crate::url::Settings;

/// It has connections of its own: those of the store are not opened where something is wrong.
impl Doctor for PostgresStore {
    async fn examine(&self) -> Vec<Finding> {
        let settings = self.settings().clone();
        let (answer, answered) = oneshot::channel();
        let work = move || {
            let found = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    let found = runtime.block_on(examine(&settings));
                    // Without waiting for a look-up of a name that takes long.
                    runtime.shutdown_background();
                    found
                }
                Err(error) => vec![Finding::unknown("server", format!("no connection can be opened here: {error}"))],
            };
            // The caller may have gone.
            let _ = answer.send(found);
        };
        if let Err(error) = std::thread::Builder::new().name("lock-postgres".to_owned()).spawn(work) {
            return vec![Finding::unknown("server", format!("no connection can be opened here: {error}"))];
        }
        answered.await.unwrap_or_else(|_| vec![Finding::unknown("server", "the examination has ended early")])
    }
}

async fn examine(settings: &Settings) -> Vec<Finding> {
    let (session, config) = match connect(settings).await {
        Ok(connected) => connected,
        Err(error) => return vec![without(&error, "server")],
    };
    let facts = match Facts::read(&session, config).await {
        Ok(facts) => facts,
        Err(error) => return vec![without(&error, "server")],
    };
    if !facts.pooled
        // A foreign function must not answer instead of the server's own. Behind a pooler the setting would stay with another client.
        && let Err(error) = session.run("SET search_path = pg_catalog, pg_temp").await
    {
        return vec![without(&error, "server")];
    }
    let mut found = vec![server::version(&facts)];
    if facts.version < server::OLDEST {
        return found;
    }
    found.push(server::role(&facts));
    found.extend(tables::schema(&session, settings, &facts).await);
    found.push(waiters::told(&session, settings, &facts).await);
    found.extend(server::connections(&facts));
    found.push(settings::commit(settings, &facts));
    found.push(replication::standbys(settings, &facts));
    found.push(settings::isolation(&facts));
    found.extend(settings::times(&facts));
    found.push(tables::vacuum(&session, settings, &facts).await);
    found.push(horizon::old(&session, settings, &facts).await);
    found.push(server::encoding(&facts));
    found.push(server::clock(&facts));
    found
}

/// Connects to the server that takes writes, or if there is none, to any that answers.
async fn connect(settings: &Settings) -> lock_core::Result<(Session, Config)> {
    let mut config = settings.config.clone();
    let session = match Session::connect(settings, &config, |_| {}).await {
        Err(error) if error.to_string().contains("grants no locks") => {
            config.target_session_attrs(TargetSessionAttrs::Any);
            Session::connect(settings, &config, |_| {}).await
        }
        known => known,
    };
    Ok((session?, config))
}
