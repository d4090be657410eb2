/** `kube-proxy prove --kernel`: compares this node's kernel with what the Services ask for. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { LINK_CREATE, PROG_LOAD } from "../../src/kernel/bpf/attributes.ts";
import { encode } from "../../src/kernel/bpf/layout.ts";
import { addressOf, fixedCopy, tryBpf } from "../../src/kernel/bpf/system-call.ts";
import { proveCommand } from "../../src/tools/cli/prove.ts";
import { render } from "../../src/tools/cli/render.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const ON_NODE = ["-f", "-", "--node", "node-a", "--mode", "nftables"];
const prove = (...more: string[]) =>
  runCommand(proveCommand, [...ON_NODE, "--kernel", "--as", "nftables", ...more], examplesAsJson());

/** Attaches a program that lets everything pass to `lo`. @returns its link; undefined where this kernel has no tcx */
function tcxProgram(): number | undefined {
  // r0 = TCX_NEXT; exit
  const [code, license] = [
    fixedCopy(Buffer.from("b7000000ffffffff9500000000000000", "hex")),
    fixedCopy(Buffer.from("GPL\0")),
  ];
  const [SCHED_CLS, TCX_INGRESS, LO] = [3, 46, 1];
  const where = { instructionCount: 2, instructions: addressOf(code), license: addressOf(license) };
  const named = { programType: SCHED_CLS, expectedAttachType: TCX_INGRESS, programName: Buffer.from("stranger") };
  const { result: programFd } = tryBpf("PROG_LOAD", encode(PROG_LOAD, { ...named, ...where }));
  if (programFd < 0) return undefined;
  const asked = { programFd, targetFd: LO, attachType: TCX_INGRESS };
  const { result } = tryBpf("LINK_CREATE", encode(LINK_CREATE, asked));
  closeSync(programFd);
  return result < 0 ? undefined : result;
}

/** Beside an nft that is this shell script; the real one is `$NFT`. */
async function withNft<T>(script: string, work: () => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "kpts-nft-"));
  const nft = execFileSync("sh", ["-c", "command -v nft"], { encoding: "utf8" }).trim();
  writeFileSync(join(folder, "nft"), `#!/bin/sh\nNFT=${nft}\n${script}\n`, { mode: 0o755 });
  const { PATH } = process.env;
  process.env.PATH = `${folder}:${PATH}`;
  try {
    return await work();
  } finally {
    process.env.PATH = PATH;
    rmSync(folder, { recursive: true });
  }
}

inNetns(import.meta.url, { name: "provecli" }, () => {
  test("the rules are what the examples ask for, until another program empties a chain of them", async () => {
    execFileSync("ip", ["link", "set", "lo", "up"]);
    execFileSync("ip", ["addr", "add", "10.200.0.2/24", "dev", "lo"]);
    // Addresses of the machine that the Node object does not have.
    for (const address of ["fd00:200::2/64", "fe80::5/64"])
      execFileSync("ip", ["addr", "add", address, "dev", "lo", "nodad"]);
    // Without a table, the configured mode says what is expected: nftables mode drops what is to no Service.
    const differing = async (mode: string): Promise<number> => {
      const argv = ["-f", "-", "--node", "node-a", "--mode", mode, "--kernel", "--family", "ipv4", "-o", "json"];
      const { out, status } = await runCommand(proveCommand, argv, examplesAsJson());
      assert.equal(status, 1);
      return JSON.parse(out)[0].differing;
    };
    assert.ok((await differing("iptables")) < (await differing("nftables")));
    for (const family of ["ipv4", "ipv6"]) {
      const { out: rules } = await runCommand(render, [...ON_NODE, "--family", family], examplesAsJson());
      execFileSync("nft", ["-f", "-"], { input: rules });
    }
    const before = await prove();
    assert.equal(before.status, 0, before.out + before.err);
    assert.match(before.out, /^this node's kernel \(node-a, IPv4\): the rules treat every packet as the Services ask/);
    assert.match(before.out, /^this node's kernel \(node-a, IPv6\): the rules treat every packet as the Services ask/m);

    const ipv4 = () => prove("--family", "ipv4");
    const after = async (command: string, undo: string) => {
      execFileSync("sh", ["-c", command]);
      const found = await ipv4();
      execFileSync("sh", ["-c", undo]);
      return found;
    };
    const tables = "cat /proc/net/ip_tables_names 2>/dev/null || true";
    const legacy = execFileSync("sh", ["-c", tables], { encoding: "utf8" });
    const dormant = await after(
      "nft add table ip kube-proxy '{ flags dormant; }'",
      "nft add table ip kube-proxy '{ flags 0; }' 2>/dev/null || nft 'add table ip kube-proxy'",
    );
    assert.equal(dormant.status, 1, dormant.out);
    const stranger = await after(
      "nft 'add table ip f { flags dormant; chain c { type filter hook forward priority 0; drop; }; }'",
      "nft delete table ip f",
    );
    assert.equal(stranger.status, 0, stranger.out);
    // A newer chain of one priority: nothing tells that it is the newer one.
    const beside = "type nat hook prerouting priority dstnat; ip daddr 10.96.0.90 tcp dport 80 dnat to 10.180.0.99;";
    const newer = await after(`nft 'table ip f { chain c { ${beside} }; }'`, "nft delete table ip f");
    assert.equal(newer.status, 2, newer.out);
    assert.match(newer.out, /it depends on whether ip \S+ \S+ is called before/);
    // iptables-save prints this one as "-j DROP" for all.
    execFileSync("iptables-nft", ["-A", "FORWARD", "-d", "203.0.113.1", "-j", "DROP"]);
    const asleep = await after("nft add table ip filter '{ flags dormant; }'", "nft add table ip filter");
    assert.equal(asleep.status, 0, "iptables-save prints a table that sleeps like any other");
    const lying = await after(
      "nft add rule ip filter FORWARD ip daddr '{ 203.0.113.1, 203.0.113.2 }' drop",
      "nft delete table ip filter",
    );
    assert.equal(lying.status, 1, lying.out);
    assert.match(lying.out, /to 203\.0\.113\.[12]/);
    assert.equal(execFileSync("sh", ["-c", tables], { encoding: "utf8" }), legacy, "no table is made by looking");
    const restored = await ipv4();
    assert.equal(restored.status, 0, restored.out);
    const cut = await withNft('case $1 in -j) echo \'{"nftables": [\';; *) exec "$NFT" "$@";; esac', ipv4);
    assert.equal(cut.status, 0, cut.out + cut.err);
    execFileSync("iptables-legacy", ["-t", "raw", "-A", "PREROUTING", "-d", "10.96.0.0/16", "-j", "DROP"]);
    const dropped = await ipv4();
    assert.equal(dropped.status, 1, dropped.out);
    assert.match(dropped.out, /this node's kernel: dropped/);
    execFileSync("iptables-legacy", ["-t", "raw", "-F"]);
    // What filters at devices do is not read: it is not claimed that there are none.
    execFileSync("sh", ["-c", "ip link add prf0 type veth peer name prf1; tc qdisc add dev prf0 clsact"]);
    const without = await ipv4();
    assert.equal(without.status, 0, without.out);
    const filter = "tc filter add dev prf0 ingress protocol ip u32 match ip dst 10.96.0.90/32 flowid 1:1";
    const filtered = await after(filter, "ip link delete prf0");
    assert.equal(filtered.status, 2, filtered.out);
    assert.match(
      filtered.out,
      /packets that come in by prf0 meet tc filter u32 at prf0 ingress: its content is not read/,
    );
    const [, proved, all] = /Everything else is equal: (\d+) of (\d+) classes/.exec(filtered.out) ?? [];
    assert.ok(Number(proved) > Number(all) / 2, "packets by other devices do not meet it");
    const link = tcxProgram();
    if (link !== undefined) {
      const programmed = await ipv4();
      closeSync(link);
      assert.equal(programmed.status, 2, programmed.out);
      assert.match(programmed.out, /program \d+ \(stranger\) at lo ingress \(tcx\): its content is not read\n/);
      assert.match(programmed.out, /Everything else is equal/);
    }

    // Source ranges are no longer checked.
    execFileSync("nft", ["flush", "chain", "ip", "kube-proxy", "firewall-check"]);
    const emptied = await prove();
    assert.equal(emptied.status, 1, emptied.err);
    assert.match(emptied.out, /specification: dropped\n {4}this node's kernel: .*masqueraded/);
    assert.match(emptied.out, /shop\/admin:http, load-balancer IP/);
  });
});
