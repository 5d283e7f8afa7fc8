// node-redlock over one server, as its documentation shows it. It extends nothing by itself; what is left of a lease is
// known by the clock of its holder.
const Redis = require("ioredis").default || require("ioredis");
const Redlock = require("redlock");
const { version } = require("redlock/package.json");

const [url, ttl] = process.argv.slice(2);
const client = new Redis(url, { commandTimeout: 2000, connectTimeout: 2000, socketTimeout: 2000 });
client.on("error", () => {});
let lock = null;

const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");

async function answer(order) {
  if (order.acquire) {
    // Its documentation: retryCount times, retryDelay apart, with jitter.
    const retry = { retryDelay: 20, retryJitter: 10, retryCount: Math.ceil(order.wait_ms / 25) };
    lock = await new Redlock([client], { driftFactor: 0.01, ...retry }).lock(order.acquire, Number(ttl));
    return { acquired: true };
  }
  if (order.check) return { held: lock.expiration > Date.now() };
  await lock.unlock();
  return { released: true };
}

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
say({ ready: `node-redlock ${version}` });
