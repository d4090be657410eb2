/** `kube-proxy prove --kernel`: compares this node's kernel with what the Services ask for. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { proveCommand } from "../../src/cli/prove.ts";
import { render } from "../../src/cli/render.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const ON_NODE = ["-f", "-", "--node", "node-a", "--mode", "nftables"];
const prove = (...more: string[]) =>
  runCommand(proveCommand, [...ON_NODE, "--kernel", "--as", "nftables", ...more], examplesAsJson());

inNetns(import.meta.url, { name: "provecli" }, () => {
  test("the rules are what the examples ask for, until another program empties a chain of them", async () => {
    execFileSync("ip", ["link", "set", "lo", "up"]);
    execFileSync("ip", ["addr", "add", "10.200.0.2/24", "dev", "lo"]);
    // Addresses of the machine that the Node object does not have.
    for (const address of ["fd00:200::2/64", "fe80::5/64"])
      execFileSync("ip", ["addr", "add", address, "dev", "lo", "nodad"]);
    for (const family of ["ipv4", "ipv6"]) {
      const { out: rules } = await runCommand(render, [...ON_NODE, "--family", family], examplesAsJson());
      execFileSync("nft", ["-f", "-"], { input: rules });
    }
    const before = await prove();
    assert.equal(before.status, 0, before.out + before.err);
    assert.match(before.out, /^this node's kernel and specification \(node-a, IPv4\): equal for all packets/);
    assert.match(before.out, /^this node's kernel and specification \(node-a, IPv6\): equal for all packets/m);

    // Source ranges are no longer checked.
    execFileSync("nft", ["flush", "chain", "ip", "kube-proxy", "firewall-check"]);
    const after = await prove();
    assert.equal(after.status, 1, after.err);
    assert.match(after.out, /specification: dropped\n {4}this node's kernel: .*masqueraded/);
    assert.match(after.out, /shop\/admin:http, load-balancer IP/);
  });
});
