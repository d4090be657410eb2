/** The kernel picks every endpoint of the flat layout equally often, both with exact slots and with a table of them. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { test } from "node:test";
import { render } from "../../../src/tools/cli/render.ts";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { runCommand } from "../../cli/run-command.ts";
import { service, slice } from "../faults/fault-node.ts";

const NODE_ADDRESS = "10.200.0.2";
/** Below and above 64, from where endpoints share a table of slots. */
const SIZES = [1, 2, 3, 7, 20, 64, 65, 200];
/** Enough to pick each endpoint, except in one run in ten million. */
const CONNECTIONS_EACH = 24;
const LANES = 16;
/** Standard deviations of the sum of squares: fair picks exceed this less than once in a million. */
const FURTHEST = 6;

const clusterIP = (size: number): string => `10.96.1.${size}`;
const endpointsOf = (size: number): string[] => Array.from({ length: size }, (_, n) => `10.180.${size}.${n + 1}`);

/** The endpoint that one connection gets. */
async function asked(size: number): Promise<string> {
  const socket = connect({ host: clusterIP(size), port: 80 });
  const [answer] = await once(socket, "data");
  socket.resetAndDestroy();
  return String(answer);
}

inNetns(import.meta.url, { name: "flatshares" }, () => {
  test("shares of endpoints are equal within what chance does", async (t) => {
    const objects = SIZES.flatMap((size) => [
      service(`of-${size}`, clusterIP(size)),
      slice(`of-${size}`, endpointsOf(size)),
    ]);
    const words = ["-f", "-", "--mode", "nftables", "--nftables-layout", "Flat", "--family", "ipv4"];
    const list = { apiVersion: "v1", kind: "List", items: objects };
    const { out } = await runCommand(render, [...words, "--hostname-override", "node-a"], JSON.stringify(list));
    execFileSync("nft", ["-f", "-"], { input: out });
    for (const command of [
      `address add ${NODE_ADDRESS}/32 dev lo`,
      // Every endpoint is local, and cluster IPs have a route, without which packets would not get as far as the rules.
      `route add local 10.180.0.0/16 dev lo src ${NODE_ADDRESS}`,
      `route add 10.96.0.0/12 dev lo src ${NODE_ADDRESS}`,
    ]) {
      execFileSync("ip", command.split(" "));
    }
    const server = createServer((socket) => socket.on("error", () => {}).write(socket.localAddress ?? ""));
    server.listen(8080, "0.0.0.0");
    await once(server, "listening");
    t.after(() => server.close());
    for (const size of SIZES) {
      const counts = new Map(endpointsOf(size).map((address) => [address, 0]));
      let left = size * CONNECTIONS_EACH;
      const lane = async (): Promise<void> => {
        while (left > 0) {
          left -= 1;
          const endpoint = await asked(size);
          const count = counts.get(endpoint) ?? assert.fail(`${endpoint} is no endpoint of ${size}`);
          counts.set(endpoint, count + 1);
        }
      };
      await Promise.all(Array.from({ length: LANES }, lane));
      assert.deepEqual(
        [...counts].flatMap(([address, count]) => (count === 0 ? [address] : [])),
        [],
        `never drawn of ${size}`,
      );
      // Pearson's sum has size - 1 degrees of freedom: that is its mean, and half its variance.
      const sum =
        [...counts.values()].reduce((all, count) => all + (count - CONNECTIONS_EACH) ** 2, 0) / CONNECTIONS_EACH;
      const freedom = size - 1;
      // Above 64 endpoints a share may deviate by an eighth.
      const skew = size > 64 ? (CONNECTIONS_EACH * size) / 64 : 0;
      const limit = freedom + skew + FURTHEST * Math.sqrt(2 * (freedom + 2 * skew)) + FURTHEST;
      assert.ok(sum <= limit, `${size} endpoints: ${sum.toFixed(1)}, at most ${limit.toFixed(1)} is chance`);
    }
  });
});
