/** `diff --dump` of nft's JSON: what nft itself prints for rules in a kernel, in both layouts. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { diff } from "../../src/tools/cli/diff.ts";
import { render } from "../../src/tools/cli/render.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

inNetns(import.meta.url, { name: "nftjson" }, () => {
  const folder = mkdtempSync(join(tmpdir(), "kpts-nft-json-"));
  after(() => rmSync(folder, { recursive: true }));
  const EXAMPLES = examplesAsJson();
  const nft = (...args: string[]) =>
    execFileSync("nft", args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"], maxBuffer: 2 ** 26 });

  for (const layout of ["Compatible", "Flat"]) {
    test(`${layout}: no difference, and one where an endpoint is another`, async () => {
      const config = join(folder, "config.yaml");
      const fields = [
        ...["apiVersion: kubeproxy.config.k8s.io/v1alpha1", "kind: KubeProxyConfiguration", "mode: nftables"],
        ...[`nftables: {layout: ${layout}}`, "nodePortAddresses: [primary, localhost]"],
        "featureGates: {KubeProxyNFTablesLocalhostNodePorts: true}",
      ];
      writeFileSync(config, fields.join("\n"));
      const plan = await runCommand(render, ["-f", "-", "--config", config, "--hostname-override", "node-a"], EXAMPLES);
      const file = join(folder, "plan.nft");
      writeFileSync(file, plan.out);
      nft("flush", "ruleset");
      nft("-f", file);
      const against = async (text: string) => {
        const dump = join(folder, "dump.json");
        writeFileSync(dump, text);
        return await runCommand(diff, ["-f", "-", "--config", config, "--node", "node-a", "--dump", dump], EXAMPLES);
      };
      const found = nft("-j", "list", "ruleset");
      assert.deepEqual(await against(found), { status: 0, out: "No differences.\n", err: "" });
      const other = await against(found.replaceAll("10.180.1.53", "10.180.1.99"));
      assert.equal(other.status, 1);
      assert.match(other.out, /extra: .*10\.180\.1\.99.*\n {2}missing: .*10\.180\.1\.53/);
      nft("flush", "ruleset");
      const none = await against(nft("-j", "list", "ruleset"));
      assert.equal(none.status, 1, "a table that is not there is a difference");
    });
  }
});
