use redis::Value;

use super::Topology;
use crate::connection::url::Address;

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

fn node(host: Value, port: i64) -> Value {
    Value::Array(vec![host, Value::Int(port), text("id")])
}

fn range(first: i64, last: i64, nodes: &[Value]) -> Value {
    let mut range = vec![Value::Int(first), Value::Int(last)];
    range.extend_from_slice(nodes);
    Value::Array(range)
}

fn address(host: &str, port: u16) -> Address {
    Address { host: host.to_owned(), port }
}

fn read(ranges: &[Value]) -> Option<Topology> {
    Topology::read(&Value::Array(ranges.to_vec()), "asked")
}

#[test]
fn masters_are_named_and_replicas_are_not() {
    let topology = read(&[
        range(0, 99, &[node(text("10.0.0.1"), 7000), node(text("10.0.0.9"), 7009)]),
        range(100, 16382, &[node(text("redis-2.internal"), 7000)]),
    ]);
    let topology = topology.unwrap();
    let named: Vec<&Address> = topology.masters().into_iter().collect();
    assert_eq!(named, [&address("10.0.0.1", 7000), &address("redis-2.internal", 7000)]);
    assert_eq!(topology.unserved(), 1);
    let found = topology.found_of(&address("redis-2.internal", 7000));
    assert_eq!((found.ends(), found.replicas), (Some((100, 16382)), 0));
    assert_eq!([99, 100, 16382, 16383].map(|slot| found.has(slot)), [false, true, true, false]);
}

#[test]
fn a_node_that_does_not_know_its_host_is_where_we_asked() {
    for unknown in [Value::Nil, text(""), text("?")] {
        let mut master = vec![unknown, Value::Int(7000), text("id")];
        // Since version 7 the answer says more about a node.
        master.push(Value::Map(vec![(text("ip"), text("10.0.0.1"))]));
        let topology = read(&[range(0, 16383, &[Value::Array(master)])]).unwrap();
        assert_eq!(topology.masters().into_iter().collect::<Vec<_>>(), [&address("asked", 7000)]);
        assert_eq!(topology.unserved(), 0);
    }
}

#[test]
fn whoever_gained_a_slot_is_told() {
    let split =
        |at: i64| read(&[range(0, at, &[node(text("a"), 1)]), range(at + 1, 16383, &[node(text("b"), 1)])]).unwrap();
    assert_eq!(split(100).gained_since(&split(100)).len(), 0);
    assert_eq!(split(101).gained_since(&split(100)).into_iter().collect::<Vec<_>>(), [&address("a", 1)]);
}

#[test]
fn a_master_tells_of_slots_that_others_do_not_know_it_has() {
    let topology = read(&[range(0, 100, &[node(text("a"), 1)]), range(101, 16383, &[node(text("b"), 1)])]).unwrap();
    let grown = |slots: &str| {
        let nodes =
            format!("2 b:1@2 master - 0 1 1 connected 101-16383\n1 a:1@2 myself,master - 0 1 1 connected{slots}\n");
        topology.has_grown(&address("a", 1), &nodes)
    };
    assert_eq!(grown(" 0-100"), Some(false));
    assert_eq!(grown(" 0-40 42 60-100 [41->-2]"), Some(false));
    assert_eq!(grown(" 0-100 [101-<-2]"), Some(true));
    assert_eq!(grown(" 0-101"), Some(true));
    assert_eq!(grown(""), Some(false));
    assert_eq!(grown(" x-y"), None);
    assert_eq!(grown(" 0-16384"), None);
    assert_eq!(topology.has_grown(&address("a", 1), ""), None);
}

#[test]
fn open_slots_are_those_of_the_node_itself() {
    let nodes =
        |own: &str| format!("2 b:1@2 master - 0 1 1 connected [7->-1]\n1 a:1@2 myself,master - 0 1 1 connected{own}\n");
    for (own, open) in [(" 0-100", 0), (" 0-100 [41->-2]", 1), (" 0-100 [41->-2] [101-<-2]", 2), ("", 0)] {
        assert_eq!(super::open(&nodes(own)), Some(open), "{own}");
    }
    assert_eq!(super::open("2 b:1@2 master - 0 1 1 connected"), None);
}

#[test]
fn redirections_name_a_host_or_none() {
    let read = |text| Address::redirected(text, "asked");
    assert_eq!(read("h:7000"), Some(address("h", 7000)));
    assert_eq!(read("::1:7000"), Some(address("::1", 7000)));
    assert_eq!(read(":7000"), Some(address("asked", 7000)));
    assert_eq!(read("?:7000"), Some(address("asked", 7000)));
    assert_eq!(read("h"), None);
    assert_eq!(read("h:70000"), None);
}

#[test]
fn answers_that_make_no_sense_are_refused() {
    let master = |port| node(text("a"), port);
    for bad in [
        Value::Nil,
        range(0, 1, &[]),
        range(0, 16384, &[master(1)]),
        range(9, 3, &[master(1)]),
        range(-1, 3, &[master(1)]),
        range(0, 3, &[master(65536)]),
        range(0, 3, &[node(Value::Int(1), 1)]),
    ] {
        assert!(read(std::slice::from_ref(&bad)).is_none(), "{bad:?}");
    }
    assert!(Topology::read(&Value::Nil, "asked").is_none());
}
