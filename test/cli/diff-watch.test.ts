/** `kube-proxy diff --kernel` in a network namespace: rules of another mode, and drift, when it appears and when it is gone. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { Readable } from "node:stream";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { diff } from "../../src/tools/cli/diff.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import { render } from "../../src/tools/cli/render.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { stretched } from "../../testkit/support/patience.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const EXAMPLES = examplesAsJson();
const NODE = ["-f", "-", "--mode", "nftables", "--family", "ipv4"];
const ELEMENT = ["element", "ip", "kube-proxy", "cluster-ips", "{ 10.96.0.10 }"];

inNetns(import.meta.url, { name: "diffwatch" }, () => {
  test("rules of another mode than the assumed one are named, with the flag", async () => {
    const { out: rules } = await runCommand(render, [...NODE, "--node", "node-a"], EXAMPLES);
    execFileSync("nft", ["-f", "-"], { input: rules });
    const bare = ["-f", "-", "--family", "ipv4", "--node", "node-a", "--kernel"];
    const warning =
      /warning: this kernel has kube-proxy's rules of nftables mode, and iptables .*: give --mode nftables\n/;
    const { err } = await runCommand(diff, bare, EXAMPLES);
    assert.match(err, warning);
    assert.doesNotMatch(err, /clusterCIDR/, "which would not help");
    assert.match((await runCommand(explain, ["shop/web", ...bare], EXAMPLES)).err, warning);
    for (const mode of ["iptables", "nftables"]) {
      const { err } = await runCommand(diff, [...bare, "--mode", mode], EXAMPLES);
      assert.doesNotMatch(err, /warning: this kernel/, "it was given");
    }
    execFileSync("nft", ["delete", "table", "ip", "kube-proxy"]);
    assert.doesNotMatch((await runCommand(diff, bare, EXAMPLES)).err, /warning: this kernel/, "there is no mode's");
  });

  test("drift is told when it comes, and when it goes", async () => {
    const { out: rules } = await runCommand(render, [...NODE, "--hostname-override", "node-a"], EXAMPLES);
    execFileSync("nft", ["-f", "-"], { input: rules });
    // The host's addresses count, not those of the Node object.
    const { out } = await runCommand(diff, [...NODE, "--node", "node-a", "--kernel"], EXAMPLES);
    assert.match(out, /nodeport-ips.*\n {2}extra: 10\.200\.0\.2\n1 difference/);
    execFileSync("ip", ["address", "add", "10.200.0.2/32", "dev", "lo"]);
    const stop = new AbortController();
    let told = "";
    const output = {
      out: (text: string) => {
        told += text;
      },
      err: () => {},
    };
    const seen = async (pattern: RegExp): Promise<void> => {
      const end = performance.now() + stretched(30_000);
      while (!pattern.test(told) && performance.now() < end) await sleep(20);
      assert.match(told, pattern);
    };
    const watching = diff(
      [...NODE, "--node", "node-a", "--kernel", "--watch", "--interval", "1"],
      output,
      Readable.from([EXAMPLES]),
      stop.signal,
    );
    await seen(/^No differences\.\n$/);
    execFileSync("nft", ["delete", ...ELEMENT]);
    await seen(/\n\d{4}-\d\d-\d\dT\S+Z\n.*cluster-ips.*\n {2}missing: 10\.96\.0\.10\n1 difference/);
    execFileSync("nft", ["add", ...ELEMENT]);
    await seen(/1 difference.*\n\d{4}-\d\d-\d\dT\S+Z\nNo differences\.\n$/);
    stop.abort();
    assert.equal(await watching, 0);
  });
});
