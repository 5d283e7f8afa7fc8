//! Scripts with one rule removed.

use crate::checker::scripts::Swaps;

/// The rule that each mutant lacks, and how.
#[rustfmt::skip]
pub(super) const ALL: &[(&str, Swaps)] = &[
    ("holders whose lease is over are taken out", &[
        ("local ended, units, refused = take_out(text(-math.floor(now / 1000)), now)", "local ended, units, refused = 0, 0"),
    ]),
    ("a lease that is over frees its units", &[
        ("give_back(units, false, value, used, now)", "give_back(0, true, value, used, now)"),
    ]),
    ("a lease that has just ended is over", &[
        ("take_out(text(-math.floor(now / 1000)), now)", "take_out(text(-math.floor(now / 1000) + 100), now)"),
    ]),
    ("K lasts as long as the last lease, after a departure", &[
        ("'PXAT', text(ends)", "'PX', '30'"),
        ("'PXAT', format('%d', longest)", "'PX', '30'"),
    ]),
    ("whoever joins raises the expiry of K", &[
        ("    value, used, refused = write_phase(used + units, value, used, now)\n",
         "    local left = call('PTTL', LOCK)\n    value, used, refused = write_phase(used + units, value, used, now)\n    if left > 0 then call('PEXPIRE', LOCK, text(left)) end\n"),
        ("'PXAT', text(longest)", "'PXAT', text(first[1] and -first[2] or longest)"),
    ]),
    ("a renewal raises the expiry of K", &[
        ("return (select(3, write_phase(used, value, used, now)))", "return"),
    ]),
    ("what is left of a phase does not count in the next", &[
        ("local more = not value and select(3, take_out('-inf', now))", "local more = false"),
        ("local refused = select(3, take_out('-inf', now))\n    if refused then\n      return false", "local refused\n    if refused then\n      return false"),
    ]),
    ("nobody passes a writer that can be told", &[("return 'blocked', value, used, other\n        end", "end")]),
    ("newcomers look whether somebody waits", &[("if -last[2] <= now_ms or", "if last[2] - 0 < 0 and -last[2] <= now_ms or")]),
    ("newcomers stay behind who is blocked", &[
        ("if ended ~= 'blocked' and fits(value, used, units, limit) then", "if fits(value, used, units, limit) then"),
    ]),
    ("a batch does not end with its first", &[
        ("value, used, batch, other = new_value, new_used, true, true", "return 'blocked', new_value, new_used, true"),
    ]),
    ("whoever is granted in the reply brings its batch along", &[
        ("walk('', now, value, used)\n      if before then", "if before then"),
    ]),
    ("whoever leaves moves the queue on", &[
        ("walk('', now, value, used)\n    if keep > 0 or not freed then", "if keep > 0 or not freed then"),
    ]),
    ("whoever leaves looks whether somebody waits", &[(" or -(last[2] or 0) <= now or", " or")]),
    ("leases that are over move the queue on", &[("return value, used, ended, refused\n", "return value, used, false, refused\n")]),
    ("a downgrade moves the queue on", &[
        ("walk('', now, value, used)\n    return wanted() and 2 or 1", "return wanted() and 2 or 1"),
    ]),
    ("units stay within the limit", &[
        ("used + units > tonumber(limit)", "used + units > limit + 1"),
        ("used and used + units <= limit", "used and used + units <= limit + 1"),
    ]),
    ("only a phase can be joined", &[("if not used then\n    return value\n", "if not used then\n    return value, value and 0 or nil\n")]),
    ("the token of a phase is above all before it", &[
        ("id and id .. '-0'", "'1-0-0'"),
        ("token = id .. '-0'", "token = '1-0-0'"),
    ]),
    ("a claim that leaves frees its units", &[
        ("used - units)", "used)"),
        ("used = used - (units or 0)", "used = used - 0"),
    ]),
    ("a repeat takes no units again", &[
        ("local shares = holds(owner, used)", "local shares = false"),
    ]),
    ("queue and waiters outlast a lease", &[
        ("let_in(owner, entry, ends, longest", "let_in(owner, entry, ends, 50 or longest"),
        ("put(must_last(now, ends), 'ZADD', QUEUE", "put(50, 'ZADD', QUEUE"),
        ("pcall('PEXPIRE', WAITERS, text(must_last(now)))", "pcall('PEXPIRE', WAITERS, '50')"),
    ]),
    ("who could not be told has no units", &[
        ("value, used = write_phase(used, new_value, new_used, now)\n", "value, used = new_value, new_used\n"),
    ]),
];

/// The scripts that they are made of.
const SCRIPTS: [&str; 8] = [
    include_str!("../../../../stores/lock-redis/src/protocol/steps/lib/pass.lua"),
    include_str!("../../../../stores/lock-redis/src/protocol/steps/lib/phase/read.lua"),
    include_str!("../../../../stores/lock-redis/src/protocol/steps/lib/phase/steps.lua"),
    include_str!("../../../../stores/lock-redis/src/protocol/steps/lib/phase/walk.lua"),
    include_str!("../../../../stores/lock-redis/src/protocol/steps/lib/phase/write.lua"),
    include_str!("../../../../stores/lock-redis/src/protocol/steps/lock/release.lua"),
    include_str!("../../../../stores/lock-redis/src/protocol/steps/share/join.lua"),
    include_str!("../../../../stores/lock-redis/src/protocol/steps/share/share.lua"),
];

/// Returns what mutants would change, and no script says.
pub(super) fn unknown() -> Vec<&'static str> {
    let swaps = ALL.iter().flat_map(|(_, swaps)| *swaps).map(|(from, _)| *from);
    swaps.filter(|from| !SCRIPTS.iter().any(|script| script.contains(from))).collect()
}
