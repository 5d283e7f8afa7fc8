//! Runs the conformance suite: on the newest version, as one server and as three, and on the oldest that is installed.

mod one {
    use lock_zookeeper::ZooKeeper;

    use crate::servers::{NEWEST, Servers, is_installed};

    fn can() -> bool {
        is_installed(NEWEST)
    }

    fn store() -> impl Fn() -> ZooKeeper {
        let servers = Servers::shared(NEWEST, 1);
        move || ZooKeeper::new(&servers.url("/conformance")).unwrap()
    }

    lock_testing::conformance_tests!(store, if can);
}

mod three {
    use lock_zookeeper::ZooKeeper;

    use crate::servers::{NEWEST, Servers, is_installed};

    fn can() -> bool {
        is_installed(NEWEST)
    }

    fn store() -> impl Fn() -> ZooKeeper {
        let servers = Servers::shared(NEWEST, 3);
        move || ZooKeeper::new(&servers.url("/conformance")).unwrap()
    }

    lock_testing::conformance_tests!(store, if can);
}

mod oldest {
    use lock_zookeeper::ZooKeeper;

    use crate::servers::{OLDEST, Servers, is_installed};

    fn can() -> bool {
        is_installed(OLDEST)
    }

    fn store() -> impl Fn() -> ZooKeeper {
        let servers = Servers::shared(OLDEST, 1);
        move || ZooKeeper::new(&servers.url("/conformance")).unwrap()
    }

    lock_testing::conformance_tests!(store, if can);
}
