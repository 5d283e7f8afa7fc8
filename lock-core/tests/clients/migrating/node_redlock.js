// Runs JavaScript beside a `redlock` of node-redlock: one line from standard input, and a line of what comes of it.
"use strict";
const Redis = require("ioredis");
const Redlock = require("redlock");
const client = new Redis({ port: Number(process.argv[2]) });
let redlock = new Redlock([client]);
redlock.on("clientError", () => {});
let lock, inside;
(async () => {
    for await (const line of require("readline").createInterface({ input: process.stdin })) {
        try {
            const value = await eval(line);
            console.log(typeof value === "object" ? "done" : String(value));
        } catch (error) {
            console.log(error.name);
        }
    }
    client.disconnect();
})();
