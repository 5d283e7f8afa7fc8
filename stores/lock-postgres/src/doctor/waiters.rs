//! Whether waiters are told of their grants.

use std::time::Duration;

use lock_core::Result;
use lock_store::Finding;
use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;
use tokio_postgres::types::Type;

use crate::doctor::facts::{Facts, without};
use crate::session::Session;
use crate::url::Settings;

const NAME: &str = "waiters";

/// How long a message to oneself may take.
const HEARD: Duration = Duration::from_secs(5);

/// Sends a message where calls go, and waits for it where grants would be heard of.
pub(super) async fn told(session: &Session, settings: &Settings, facts: &Facts) -> Finding {
    if facts.follows {
        return Finding::unknown(NAME, "nobody can listen at a standby; this is found out at the primary");
    }
    if facts.pooled && settings.listen.is_none() {
        let says = "there is a pooler by transaction, in which nobody can listen, so waiters ask again and again";
        return Finding::warning(NAME, says).with_remedy("name the server itself in the URL: listen=host:5432");
    }
    match heard(session, settings, facts).await {
        Ok(Heard::Message) if facts.pooled => Finding::works(NAME, "told at once, past the pooler, by listen="),
        Ok(Heard::Message) => Finding::works(NAME, "told at once"),
        Ok(Heard::Nothing) => {
            let says =
                "what is said where the calls go is not heard where listen= leads, so waiters ask again and again";
            Finding::warning(NAME, says)
                .with_remedy("let listen= name the server that the pooler leads to, and no other")
        }
        Ok(Heard::Pooler) => {
            let says =
                "listen= leads to a pooler by transaction, in which nobody can listen, so waiters ask again and again";
            Finding::warning(NAME, says).with_remedy("let listen= name the server itself")
        }
        Err(error) => without(&error, NAME),
    }
}

enum Heard {
    Message,
    Nothing,
    Pooler,
}

async fn heard(session: &Session, settings: &Settings, facts: &Facts) -> Result<Heard> {
    let config = settings.listen.as_ref().unwrap_or(&facts.config);
    let (told, mut messages) = mpsc::unbounded_channel();
    let listening = Session::connect(settings, config, move |message| {
        if let AsyncMessage::Notification(notification) = message {
            let _ = told.send(notification.payload().to_owned());
        }
    })
    .await?;
    if settings.listen.is_some() && listening.is_pooled().await? {
        return Ok(Heard::Pooler);
    }
    // Nobody else's: two may examine at a time.
    let (channel, word) = (format!("{}_doctor", settings.schema), lock_core::OwnerId::random().to_hex());
    listening.run(&format!("LISTEN \"{channel}\"")).await?;
    session.ask("SELECT pg_catalog.pg_notify($1, $2)", &[(&channel, Type::TEXT), (&word, Type::TEXT)]).await?;
    let ours = async {
        loop {
            match messages.recv().await {
                Some(text) if text == word => return Heard::Message,
                Some(_) => {}
                None => return Heard::Nothing,
            }
        }
    };
    #[expect(clippy::disallowed_methods, reason = "runs on a runtime of the store's own, which has a timer")]
    Ok(tokio::time::timeout(HEARD, ours).await.unwrap_or(Heard::Nothing))
}
