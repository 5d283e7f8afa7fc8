// node-redlock over one server, as its documentation shows it. It extends nothing by itself, and the holder's clock
// tells the rest of the lease.
const Redis = require("ioredis").default || require("ioredis");
const Redlock = require("redlock");
const { version } = require("redlock/package.json");
const { serve } = require("./lines.js");

const [url, ttl] = process.argv.slice(2);
const client = new Redis(url, { commandTimeout: 2000, connectTimeout: 2000, socketTimeout: 2000 });
client.on("error", () => {});

serve(`node-redlock ${version}`, () => {
  let lock = null;
  return {
    async acquire(key, waitMs) {
      // Its documentation: retryCount times, retryDelay apart, with jitter.
      const retry = { retryDelay: 20, retryJitter: 10, retryCount: Math.ceil(waitMs / 25) };
      lock = await new Redlock([client], { driftFactor: 0.01, ...retry }).lock(key, Number(ttl));
    },
    held: () => lock.expiration > Date.now(),
    release: () => lock.unlock(),
  };
});
