use lock_testing::limit;

use super::replica;

#[test]
#[limit]
fn replicas_are_read_out_of_info() {
    let read = |line| replica(line).map(|server| (server.name, server.problem));
    let (name, problem) = read("slave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=0\r").unwrap();
    assert_eq!((name.as_str(), problem), ("10.0.0.2:6379", None));
    let (name, problem) = read("slave1:ip=::1,port=7000,state=wait_bgsave,offset=0,lag=0").unwrap();
    assert!(name == "[::1]:7000" && problem.unwrap().contains("wait_bgsave"));
    let (_, problem) = read("slave1:ip=::1,port=7000,state=online,offset=0,lag=60").unwrap();
    assert!(problem.unwrap().contains("60 s"));
    for other in ["role:master", "slave_read_only:1", "slave_repl_offset:12", "connected_slaves:2", ""] {
        assert_eq!(read(other), None, "{other}");
    }
}
