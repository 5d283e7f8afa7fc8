// Handles the standard streams of every adapter in JavaScript: peers/README.md.
const fs = require("fs");

const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
const sleep = (ms) => new Promise((wake) => setTimeout(wake, Math.max(0, ms)));
const now = () => process.hrtime.bigint();

// Answers orders until they end. `create` returns one lock with `held()`, `release()` and `acquire(key, waitMs)`, which
// throws if the lock is refused. These locks share their connections.
exports.serve = (name, create) => {
  const lock = create();
  const answer = async (order) => {
    if (order.load) return load(create, order.load);
    if (order.acquire) return lock.acquire(order.acquire, order.wait_ms).then(() => ({ acquired: true }));
    if (order.check) return { held: lock.held() };
    await lock.release();
    return { released: true };
  };
  let last = Promise.resolve();
  require("readline")
    .createInterface({ input: process.stdin })
    .on("line", (line) => {
      last = last
        .then(() => answer(JSON.parse(line)))
        .catch((error) => ({ acquired: false, held: false, released: false, why: String(error) }))
        .then(say);
    })
    .on("close", () => process.exit(0));
  say({ ready: name });
};

// The loop of a benchmark: acquire, hold and release in many tasks. Returns unfinished waits and errors; the records
// are in the file.
async function load(create, { tasks, first, keys_per_task: keys, hold_us, from, to, file }) {
  const [records, since, failed] = [[], Array(tasks).fill(0n), []];
  const work = async (at) => {
    const lock = create();
    for (let turn = 0; now() < to; turn++) {
      const key = keys ? (first + at) * keys + (turn % keys) : 0;
      const start = (since[at] = now());
      try {
        await lock.acquire(`bench:${key}`, 3600000);
        const enter = now();
        since[at] = 0n;
        if (hold_us) await sleep(hold_us / 1000);
        records.push([start, enter, now(), 0n, key, first + at, 1]);
        await lock.release();
      } catch (error) {
        failed.push(String(error));
      }
    }
  };
  for (let at = 0; at < tasks; at++) work(at);
  const until = (at) => sleep(Number(BigInt(at) - now()) / 1e6);
  await until(from);
  let cpu = process.cpuUsage();
  await until(to);
  cpu = process.cpuUsage(cpu);
  const open = since.filter((start) => start && start < to).map((start) => Number(BigInt(to) - start));
  // Holders get time to release. Waiters wait until this process is ended.
  await sleep(100 + hold_us / 1000);
  const count = records.length;
  const bytes = Buffer.alloc(44 * count);
  records.slice(0, count).forEach((record, row) =>
    record.forEach((word, at) =>
      at < 4
        ? bytes.writeBigUInt64LE(word, 44 * row + 8 * at)
        : bytes.writeUInt32LE(word, 44 * row + 32 + 4 * (at - 4)),
    ),
  );
  fs.writeFileSync(file, bytes);
  const used = 1000 * (cpu.user + cpu.system);
  return { loaded: count, cpu: used, open, errors: failed.length, why: failed[0] || "" };
}
