// Runs JavaScript beside a `redisson` of node-redisson: one line from standard input, and a line of what comes of it.
"use strict";
const { Redisson } = require("node-redisson");
const redisson = new Redisson({ redis: { options: { port: Number(process.argv[2]) } } });
let lock;
(async () => {
    console.log("ready");
    for await (const line of require("readline").createInterface({ input: process.stdin })) {
        try {
            console.log(String(await eval(line)));
        } catch (error) {
            console.log(error.name);
        }
    }
    process.exit(0);
})();
