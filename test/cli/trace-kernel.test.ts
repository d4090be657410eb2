/** `kube-proxy trace` without manifests or dumps: through the rules, addresses and routes of this node's kernel. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { trace } from "../../src/tools/cli/trace.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { caseFile } from "../conformance/conformance-case.ts";
import { type Ran, runCommand } from "./run-command.ts";

const ask = (...argv: string[]): Promise<Ran> => runCommand(trace, ["--from", "node", "--to", ...argv]);

function restore(tool: string, rules: string): void {
  execFileSync(tool, { input: rules, stdio: ["pipe", "ignore", "inherit"] });
}

inNetns(import.meta.url, { name: "tracecli" }, () => {
  test("rules, addresses and routes are read", async () => {
    const batch = [
      "addr add 10.200.0.2/32 dev lo",
      "addr add fd00:200::2/128 dev lo",
      "link add eth0 type veth peer name peer0",
    ];
    const links = ["link set eth0 up", "route add 10.180.0.0/15 dev eth0 src 10.200.0.2", "route add default dev eth0"];
    execFileSync("ip", ["-batch", "-"], { input: `${[...batch, ...links].join("\n")}\n` });
    const rules = caseFile("cluster-ip", "iptables/iptables.txt").split("\n");
    // Not every kernel has the counters.
    restore("iptables-restore", rules.filter((rule) => !rule.includes("nfacct")).join("\n"));

    const { status, out, err } = await ask("10.96.1.1:80");
    assert.equal(status, 0, err);
    assert.match(out, /^Packet: tcp 10\.200\.0\.2 to 10\.96\.1\.1:80, from the node itself, connection new$/m);
    assert.match(out, /33\.3 % {2}sent to 10\.180\.0\.5:8080, from 10\.200\.0\.2 \(masqueraded\)/);
    const outside = await runCommand(trace, ["--from", "198.51.100.7", "--in", "eth0", "--to", "10.96.1.1:80"]);
    assert.match(outside.out, /33\.3 % {2}sent to 10\.180\.1\.5:8080, from 10\.200\.0\.2 \(masqueraded\)/);
    // nft's view of the same rules is not walked again.
    const whole = await ask("10.96.1.1:80", "--all");
    assert.equal(whole.out.match(/nat, OUTPUT/g)?.length, 1, whole.out);
    if (!existsSync("/proc/net/ip_vs")) assert.doesNotMatch(out, /ipvsadm/);
  });

  test("masqueraded packets have the address that the kernel chooses: the interface's, beside its router", async () => {
    const own = ["172.16.0.5/24", "172.16.1.5/24", "172.16.1.6/24"].map((address) => `addr add ${address} dev eth1`);
    const links = ["link add eth1 type veth peer name peer1", ...own, "link set eth1 up"];
    const ways = ["route add 10.180.1.0/24 via 172.16.1.1 dev eth1", "route add 10.180.0.0/24 dev eth1"];
    execFileSync("ip", ["-batch", "-"], { input: `${[...links, ...ways].join("\n")}\n` });
    const { out } = await runCommand(trace, ["--from", "198.51.100.7", "--in", "eth0", "--to", "10.96.1.1:80"]);
    const sources = [...out.matchAll(/% {2}sent to (\S+):8080, from (\S+) \(masqueraded\)/g)];
    assert.equal(sources.length, 3, out);
    for (const [line, endpoint = "", source] of sources) {
      const [way] = JSON.parse(execFileSync("ip", ["-j", "route", "get", endpoint], { encoding: "utf8" }));
      assert.equal(source, way.prefsrc, line);
    }
    assert.deepEqual(
      new Set(sources.map(([, , source]) => source)),
      new Set(["172.16.0.5", "172.16.1.5", "10.200.0.2"]),
    );
  });

  test("of session affinity, the kernel's lists say who has been here", async (t) => {
    execFileSync("nft", ["flush", "ruleset"]);
    const rules = caseFile("session-affinity", "iptables/iptables.txt").split("\n");
    restore("iptables-restore", rules.filter((rule) => !rule.includes("nfacct")).join("\n"));
    const [, service = ""] = /-d (\S+)\/32 .*-j KUBE-SVC-/.exec(rules.join("\n")) ?? [];
    const [, port = ""] = /--dport (\d+) -j KUBE-SVC-/.exec(rules.join("\n")) ?? [];
    const lists = readdirSync("/proc/net/xt_recent");
    if (lists.length === 0) return t.skip("the kernel has no lists");
    const before = await ask(`${service}:${port}`);
    assert.equal(before.status, 0, before.err);
    assert.doesNotMatch(before.out, /session affinity/);
    assert.match(before.out, /33\.3 %/);
    const chains = rules
      .filter((rule) => rule.includes("--rcheck"))
      .map((rule) => / --name (\S+)/.exec(rule)?.[1] ?? "");
    const list = chains.find((name) => lists.includes(name)) ?? "";
    writeFileSync(`/proc/net/xt_recent/${list}`, "+10.200.0.2\n");
    const { out } = await ask(`${service}:${port}`);
    assert.match(out, new RegExp(`--name ${list} `));
    assert.match(out, /100\.0 % {2}sent to/);
  });

  test("where there are no rules, nothing is done to a packet", async () => {
    execFileSync("nft", ["flush", "ruleset"]);
    const { status, out } = await ask("10.96.1.1:80");
    assert.equal(status, 0);
    assert.match(out, /100\.0 % {2}sent to 10\.96\.1\.1:80, from 10\.200\.0\.2 \(kept\)/);
  });
});
