/** `render --mode nftables` for the conformance cases: its text and its JSON are what `nft` prints on upstream's node. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { render } from "../../src/tools/cli/render.ts";
import { canonicalNftText } from "../conformance/canonical-nft-text.ts";
import { canonicalNftables } from "../conformance/canonical-nftables.ts";
import { caseFile, caseNames, caseState, SERVICE_CIDR_OBJECT } from "../conformance/conformance-case.ts";
import { runCommand } from "./run-command.ts";

async function rendered(t: TestContext, name: string, ...options: string[]): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "kpts-render-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const { node, services, slices } = caseState(name);
  const items = [node, SERVICE_CIDR_OBJECT, ...services, ...slices];
  const config = join(folder, "config.yaml");
  writeFileSync(config, caseFile(name, "nftables/config.yaml"));
  const args = ["-f", "-", "--config", config, "--hostname-override", "node-a", "--family", "ipv4", ...options];
  const { status, out } = await runCommand(render, args, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  assert.equal(status, 0);
  return out;
}

describe("every case is rendered as nft lists it", () => {
  for (const name of caseNames()) {
    test(name, async (t) => {
      const families = ["ipv4", "ipv6"];
      const render = (form: string) =>
        Promise.all(families.map((family) => rendered(t, name, "--family", family, "-o", form)));
      const text = (await render("text")).join("");
      assert.equal(canonicalNftText(text), canonicalNftText(caseFile(name, "nftables/nft.txt")));
      const objects = (await render("json")).flatMap((json) => JSON.parse(json).nftables);
      assert.equal(
        canonicalNftables(objects),
        canonicalNftables(JSON.parse(caseFile(name, "nftables/nft.json")).nftables),
      );
    });
  }
});

test("--compatibility chooses the release, and a wrong one is named", async (t) => {
  const single = async (...options: string[]) => (await rendered(t, "random-001", ...options)).includes("mod 1 map");
  assert.deepEqual([await single(), await single("--compatibility", "v1.36")], [false, true]);
  await assert.rejects(
    runCommand(render, ["-f", "-", "--compatibility", "v1.9"], "{}"),
    /Compatibility: Unsupported value: "v1\.9": supported values: "v1\.36", "v1\.37", "v1\.38"/,
  );
});

test("the messages are shown with everything that they say", async (t) => {
  const lines = (await rendered(t, "cluster-ip", "-o", "netlink")).split("\n");
  assert.equal(lines[0], "# 0: begin batch, type 0x0010, flags 0x1, family 0, 20 bytes");
  assert.match(lines.at(-2) ?? "", /^# \d+: end batch, type 0x0011/);
  const at = lines.indexOf("  chain: nat-postrouting");
  assert.match(lines[at - 2] ?? "", /^# \d+: add rule, type 0x0a06, flags 0xc01, family 2, \d+ bytes$/);
  assert.equal(lines[at + 1], "  expressions:");
  assert.equal(lines[at + 2], "    - immediate dreg 0, data (verdict (code -3, chain masquerading))");
});

test("what a mode does not have is refused", async (t) => {
  await assert.rejects(rendered(t, "cluster-ip", "--mode", "iptables", "-o", "netlink"), {
    message: 'mode iptables has no output "netlink": use --output text, json, iptables-save',
  });
  await assert.rejects(rendered(t, "cluster-ip", "--mode", "userspace", "-o", "ipset"), {
    message: 'mode userspace has no output "ipset": use --output text, json, iptables-save',
  });
  await assert.rejects(
    rendered(t, "cluster-ip", "-o", "xml"),
    /--output must be text, json, iptables-save, ip, ipset, ipvsadm, iptables, netlink, sockets, programs, got "xml"/,
  );
});
