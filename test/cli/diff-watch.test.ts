/** `kube-proxy diff --kernel --watch` reports drift of the rules in a network namespace when it appears and when it is gone. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { Readable } from "node:stream";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { diff } from "../../src/cli/diff.ts";
import { render } from "../../src/cli/render.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { stretched } from "../../testkit/support/patience.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const EXAMPLES = examplesAsJson();
const NODE = ["-f", "-", "--mode", "nftables", "--family", "ipv4"];
const ELEMENT = ["element", "ip", "kube-proxy", "cluster-ips", "{ 10.96.0.10 }"];

inNetns(import.meta.url, { name: "diffwatch" }, () => {
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
