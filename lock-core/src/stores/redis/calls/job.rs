//! The runs of jobs, on one server.

use crate::contract::backend::{JobRecord, JobRun, Release};
use crate::stores::redis::server::node::{Node, Way};
use crate::stores::redis::steps;
use crate::stores::redis::steps::script::Eval;
use crate::types::error::Result;
use crate::types::key::LockKey;

impl Node {
    /// Notes the run of a job that ends. A failure only makes the next run look overdue: it must not keep the lock
    /// from being freed.
    pub(crate) async fn note_run(&self, release: &Release, run: JobRun, way: Way) {
        let noted = match self.keys_of(&release.claim.key) {
            Ok(keys) => self.job(&steps::note_run(&keys, release.claim.owner, run), way).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = noted {
            tracing::debug!(key = %release.claim.key, %error, "the run of a job was not noted");
        }
    }

    pub(crate) async fn read_last_run(&self, key: &LockKey, way: Way) -> Result<Option<JobRecord>> {
        self.job(&steps::last_run(&self.keys_of(key)?), way).await.map(|answer| steps::read_last_run(&answer))
    }

    async fn job(&self, call: &Eval, way: Way) -> Result<redis::Value> {
        let connection = self.pool.connection().await?;
        let link = &connection.link;
        let answer = if way.asking { link.eval_asking(call).await } else { link.eval(call).await };
        answer.map_err(|error| self.failed("look at the runs of a job", &error))
    }
}
