use std::sync::Arc;
use std::time::Duration;

use crate::calls::run::renewing;
use crate::connection::connect::{Settings, Target};
use crate::sentinel::place::Place;
use crate::server::node::Node;
use lock_store::types::options::Durability;
use lock_testing::{RedisServer, limit};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
#[limit]
async fn a_keeper_opens_a_connection_for_renewals_and_gives_it_back_when_it_is_idle() {
    let server = RedisServer::start();
    let target = Target::parse(&server.url(), Settings::default()).unwrap();
    let node = Node::new(Place::Fixed(Arc::new(target)), Durability::Master, None);
    let open = || (node.pool.connections(), node.renewals.pool.connections());
    renewing(&node, MINUTE).await.unwrap();
    assert_eq!(open(), (1, 0), "no keeper runs here");
    let _kept = node.renewals.keep_here();
    renewing(&node, MINUTE).await.unwrap();
    assert_eq!(open(), (1, 1));
    node.renewals.pool.close_if_idle();
    assert_eq!(open(), (1, 1), "it was used since the last look");
    node.renewals.pool.close_if_idle();
    assert_eq!(open(), (1, 0));
    renewing(&node, MINUTE).await.unwrap();
    assert_eq!(open(), (1, 1));
}
