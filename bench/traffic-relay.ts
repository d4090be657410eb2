/** The relay without a Service around it: `node traffic-relay.ts ADDRESS PORT TO-ADDRESS TO-PORT`. */

import { silentLogger } from "../src/logging/logger.ts";
import { parseIpAddress } from "../src/net/ip.ts";
import { NodeRelays } from "../src/relay/node-relays.ts";

const [listenText = "", port, toText = "", toPort] = process.argv.slice(2);
const address = parseIpAddress(listenText);
const toAddress = parseIpAddress(toText);
if (address === undefined || toAddress === undefined) throw new TypeError("two addresses are needed");
const destination = { address: toAddress, port: Number(toPort) };
await new NodeRelays({ log: silentLogger, fileLimit: 64_000 }).listen({
  protocol: "TCP",
  address,
  port: Number(port),
  pick: () => destination,
  observer: { opened() {}, closed() {}, bytes() {}, dialFailed() {}, refused() {} },
  idleTimeoutMs: 250,
});
process.stdout.write("ready\n");
