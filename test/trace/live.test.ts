/**
 * `kube-proxy trace --live` in a network namespace: real packets through the program's own rules, of both layouts and families and of
 * iptables, are reported as they are simulated; what it installs is gone afterwards.
 */
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { render } from "../../src/tools/cli/render.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import { KUBE_PROXY } from "../../testkit/needs/built-program.ts";
import { newRunName } from "../../testkit/net/run-name.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { stretched } from "../../testkit/support/patience.ts";
import { UNPRIVILEGED } from "../../testkit/support/unprivileged.ts";
import { type Ran, runCommand } from "../cli/run-command.ts";

const EXAMPLES = fileURLToPath(new URL("../../examples", import.meta.url));
const TABLE = "kube-proxy-trace";
const POD = newRunName("livepod");
const SECONDS = String(Math.ceil(stretched(20_000) / 1_000));

const tables = (): string => execFileSync("nft", ["list", "tables"], { encoding: "utf8" });

/** One UDP or TCP packet, which has no answer. */
function send(end: string, from: "node" | "pod"): void {
  const script = `echo > /dev/${end} & sleep 0.2; kill $! 2>/dev/null; true`;
  const argv = from === "pod" ? ["ip", "netns", "exec", POD, "bash", "-c", script] : ["bash", "-c", script];
  execFileSync(argv[0] ?? "", argv.slice(1), { stdio: "ignore" });
}

/** Runs the command on a terminal, and sends once it waits. @returns what it says without its colours */
async function live(args: readonly string[], ...packets: readonly (() => void)[]): Promise<Ran> {
  let [out, err] = ["", ""];
  const output = {
    out: (text: string) => {
      out += text;
    },
    err: (text: string) => {
      err += text;
      if (text.startsWith("Waiting")) for (const packet of packets) packet();
    },
    terminal: { hasColour: true, width: 200 },
  };
  const status = await trace(["--live", "--timeout", SECONDS, ...args], output);
  assert.doesNotMatch(tables(), new RegExp(TABLE));
  const plain = stripVTControlCharacters(out);
  assert.equal(plain !== out, plain.includes("What became of it:"), "reports have colour, and JSON has none");
  return { status, out: plain, err };
}

async function load(mode: string, ...options: readonly string[]): Promise<void> {
  execFileSync("nft", ["flush", "ruleset"]);
  const args = ["-f", EXAMPLES, "--mode", mode, "--hostname-override", "node-a"];
  const form = mode === "iptables" ? ["-o", "iptables-save", "--without", "nfacct"] : [];
  for (const family of mode === "iptables" ? ["ipv4", "ipv6"] : ["both"]) {
    const { out, err } = await runCommand(render, [...args, ...form, "--family", family, ...options]);
    assert.notEqual(out, "", err);
    const [tool = "", ...rest] =
      mode === "nftables" ? ["nft", "-f", "-"] : [family === "ipv4" ? "iptables-nft-restore" : "ip6tables-nft-restore"];
    execFileSync(tool, rest, { input: out, stdio: ["pipe", "ignore", "inherit"] });
  }
}

inNetns(import.meta.url, { name: "live", timeoutMs: 180_000 }, () => {
  before(() => {
    execFileSync("ip", ["netns", "add", POD]);
    const batch = [
      `link add cni0 type veth peer name eth0 netns ${POD}`,
      "link set cni0 up",
      "addr add 10.180.0.1/16 dev cni0",
      "addr add fd00:180::1/64 dev cni0 nodad",
      "addr add 192.168.0.2/32 dev lo",
      "addr add fd00:192::2/128 dev lo nodad",
      "link add out type veth peer name elsewhere",
      "link set out up",
      "route add default dev out src 192.168.0.2",
      "route add ::/0 dev out src fd00:192::2",
    ];
    const podBatch = [
      "link set lo up",
      "link set eth0 up",
      "addr add 10.180.0.250/16 dev eth0",
      "addr add fd00:180::250/64 dev eth0 nodad",
      "route add default via 10.180.0.1",
      "route add ::/0 via fd00:180::1",
    ];
    execFileSync("ip", ["-batch", "-"], { input: `${batch.join("\n")}\n` });
    execFileSync("ip", ["-n", POD, "-batch", "-"], { input: `${podBatch.join("\n")}\n` });
    for (const key of ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"]) writeFileSync(`/proc/sys/${key}`, "1");
  });

  after(() => execFileSync("ip", ["netns", "delete", POD]));

  for (const [name, mode, ...options] of [
    ["nftables", "nftables"],
    ["nftables, flat", "nftables", "--nftables-layout", "Flat"],
    ["iptables", "iptables"],
  ] as const) {
    test(`${name}: what the kernel does is what is simulated`, async () => {
      await load(mode, ...options);
      const pod = await live(["--from", "10.180.0.250", "--to", "10.96.0.31:80"], () =>
        send("tcp/10.96.0.31/80", "pod"),
      );
      assert.equal(pod.status, 0, `${pod.out}${pod.err}`);
      assert.match(
        pod.out,
        /^Packet: tcp 10\.180\.0\.250:\d+ to 10\.96\.0\.31:80, coming in by cni0, connection new$/m,
      );
      assert.match(pod.out, /What became of it: sent to 10\.180\.\d\.\d+:8080, from 10\.180\.0\.250 \(kept\), by cni0/);
      assert.match(pod.out, /The simulation says the same, one way among several: its odds are 50\.0 %\./);

      const node = await live(["--from", "node", "--to", "10.96.0.31:80"], () => send("tcp/10.96.0.31/80", "node"));
      assert.equal(node.status, 0, `${node.out}${node.err}`);
      assert.match(node.out, /from the node itself/);

      // No endpoint: refused.
      const refused = await live(["--to", "10.96.0.70:80"], () => send("tcp/10.96.0.70/80", "pod"));
      assert.equal(refused.status, 0, `${refused.out}${refused.err}`);
      assert.match(refused.out, /What became of it: refused \(/);
    });
  }

  test("IPv6", async () => {
    await load("nftables");
    const { out: listing } = await runCommand(render, ["-f", EXAMPLES, "--mode", "nftables", "--family", "ipv6"]);
    const [, address = ""] = /(fd00:[0-9a-f:]+) \. tcp \. 80 /.exec(listing) ?? [];
    assert.notEqual(address, "");
    const { status, out, err } = await live(["--to", `[${address}]:80`], () => send(`tcp/${address}/80`, "pod"));
    assert.equal(status, 0, `${out}${err}`);
    assert.match(out, /The simulation says the same/);
  });

  test("several packets, the later ones of a connection that is known", async () => {
    const fromOnePort = `exec 5<>/dev/udp/10.96.0.53/53; for i in 1 2 3; do echo x >&5; sleep 0.1; done`;
    const { status, out, err } = await live(["--count", "2", "--to", "10.96.0.53:53/udp", "-o", "json"], () =>
      execFileSync("ip", ["netns", "exec", POD, "bash", "-c", fromOnePort]),
    );
    assert.equal(status, 0, `${out}${err}`);
    const { packets } = JSON.parse(out);
    const rulesOf = (one: { kernel: { steps: { kind: string; text?: string }[] } }): string =>
      one.kernel.steps.map(({ kind, text }) => (kind === "match" ? text : "")).join(" ");
    // The first is led by a rule, the second as the connection is.
    assert.match(rulesOf(packets[0]), /dnat/);
    assert.doesNotMatch(rulesOf(packets[1]), /dnat/);
    assert.deepEqual(packets[0].kernel.packet.destination, packets[1].kernel.packet.destination);
  });

  test("what is not simulated is pointed out, and rules of others are named", async () => {
    const foreign =
      "table ip other {\nchain raw {\ntype filter hook prerouting priority -300\nmeta length > 1 counter\n}\n}";
    execFileSync("nft", [foreign]);
    execFileSync("ip", ["route", "add", "blackhole", "10.180.1.0/24"]);
    execFileSync("ip", ["route", "add", "blackhole", "10.180.0.8/29"]);
    const { status, out } = await live(["--to", "10.96.0.31:80"], () => send("tcp/10.96.0.31/80", "pod"));
    assert.equal(status, 1, out);
    assert.match(out, /ip other, raw\n.* raw 1: meta length > 1 counter/);
    assert.match(out, /What became of it: not known: after prerouting the kernel reports nothing more/);
    assert.match(out, /^The simulation differs: sent to 10\.180/m);
    assert.match(out, /^- forward$/m);
    execFileSync("nft", ["delete", "table", "ip", "other"]);
  });

  test("nothing comes: the status is 1", async () => {
    const { status, err } = await live(["--to", "10.96.0.99:80", "--timeout", "1"]);
    assert.equal(status, 1);
    assert.match(err, /No such packet arrived/);
  });

  test("one at a time; what is installed goes with the process, however it ends", async () => {
    for (const signal of ["SIGKILL", "SIGINT"] as const) {
      const other = spawn(KUBE_PROXY, ["trace", "--live", "--to", "10.96.0.31:80"], {
        stdio: ["ignore", "pipe", "pipe"],
      });
      await waits(other);
      assert.match(tables(), new RegExp(TABLE));
      const second = await runCommand(trace, ["--live", "--to", "10.96.0.31:80"]);
      assert.equal(second.status, 2);
      assert.match(
        second.err,
        /the table ip kube-proxy-trace already exists \(owned by process \d+\)\nAnother trace --live/,
      );
      other.kill(signal);
      const [status] = await once(other, "close");
      assert.equal(status, signal === "SIGINT" ? 1 : null);
      assert.doesNotMatch(tables(), new RegExp(TABLE));
    }
  });

  test("without permission it says so", async () => {
    const [program, ...words] = UNPRIVILEGED;
    const argv = [...words, KUBE_PROXY, "trace", "--live", "--to", "10.96.0.31:80"];
    const child = spawn(program, argv, { stdio: ["ignore", "pipe", "pipe"] });
    let text = "";
    child.stderr.on("data", (chunk) => (text += String(chunk)));
    const [status] = await once(child, "close");
    assert.match(text, /^Error: tracing packets in this node's kernel needs root$/m);
    assert.equal(status, 2);
  });

  test("the rules of iptables-legacy cannot be traced, and it says so", async (t) => {
    execFileSync("nft", ["flush", "ruleset"]);
    const rule = ["-t", "nat", "-A", "OUTPUT", "-d", "10.96.0.1", "-j", "ACCEPT"];
    try {
      execFileSync("iptables-legacy", rule, { stdio: "ignore" });
    } catch {
      t.skip("the kernel has no tables of iptables-legacy");
      return;
    }
    const folder = mkdtempSync(join(tmpdir(), "kpts-legacy-"));
    const { PATH } = process.env;
    try {
      for (const name of ["iptables", "iptables-save"]) {
        const target = name.replace("iptables", "iptables-legacy");
        writeFileSync(join(folder, name), `#!/bin/sh\nexec ${target} "$@"\n`, { mode: 0o755 });
      }
      process.env.PATH = `${folder}:${PATH}`;
      const { status, err } = await live(["--to", "10.96.0.31:80"]);
      assert.equal(status, 2);
      assert.match(err, /the rules of iptables-legacy cannot be traced/);
    } finally {
      process.env.PATH = PATH;
      rmSync(folder, { recursive: true });
    }
  });
});

async function waits(child: ChildProcess): Promise<void> {
  let text = "";
  child.stderr?.on("data", (chunk) => (text += String(chunk)));
  while (!text.includes("Waiting")) {
    assert.equal(child.exitCode, null, text);
    await sleep(5);
  }
}
