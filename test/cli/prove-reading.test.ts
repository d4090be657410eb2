/** How `kube-proxy prove --kernel` reads the kernel: what it may not read, what it leaves as it is, and what it costs. */
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { execPath } from "node:process";
import { before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { nftablesGeneration } from "../../src/kernel/nftables/completed-listing.ts";
import { readChoices } from "../../src/tools/cli/inspect-options.ts";
import { proveCommand } from "../../src/tools/cli/prove.ts";
import { foundInKernel } from "../../src/tools/cli/prove-rules.ts";
import { render } from "../../src/tools/cli/render.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { stretched } from "../../testkit/support/patience.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const MAIN = fileURLToPath(new URL("../../src/tools/cli/main.ts", import.meta.url));
const ON_NODE = ["-f", "-", "--node", "node-a", "--mode", "nftables", "--family", "ipv4"];
const CLUSTER_IP = "10.96.0.90";

const prove = () => runCommand(proveCommand, [...ON_NODE, "--kernel"], examplesAsJson());
const sh = (command: string) => execFileSync("sh", ["-c", command], { encoding: "utf8" });

/** @param capabilities which the command does not have, such as `net_admin`. */
function proveWithout(...capabilities: readonly string[]) {
  const without = capabilities.map((one) => `-${one}`).join();
  const argv = [`--bounding-set=${without}`, `--inh-caps=${without}`, execPath, MAIN, "prove", ...ON_NODE];
  return spawnSync("setpriv", [...argv, "--kernel"], { input: examplesAsJson(), encoding: "utf8" });
}

const LOADED = ["/proc/modules", "/proc/net/ip_tables_names", "/proc/net/ip6_tables_names", "/proc/net/netlink"];

/** Rules, tables, modules, devices and sysctls: everything that a look may change. */
async function state() {
  const files = LOADED.map((path) => [path, existsSync(path) ? readFileSync(path, "utf8") : ""] as const);
  const read = new Map(files.map(([path, text]) => [path, text.match(/^\S+(?: +\d+)?/gm)?.sort()]));
  // A number of use follows a module's name, and an address a socket.
  const modules = read.get("/proc/modules")?.map((line) => line.split(" ")[0]);
  const protocols = new Set(read.get("/proc/net/netlink")?.map((line) => line.split(/ +/)[1]));
  return {
    ...{ modules, protocols, tables: [read.get(LOADED[1] ?? ""), read.get(LOADED[2] ?? "")] },
    generation: await nftablesGeneration(),
    rules: sh("nft -a list ruleset 2>/dev/null"),
    devices: sh("ip -o link; ip rule; ip route show table all; tc qdisc"),
    settings: sh(
      "sysctl -a 2>/dev/null | grep -E '^net.(ipv4|ipv6|bridge|netfilter)' | grep -vE 'count|_mem|seed|random|pool|key' | sort",
    ),
  };
}

inNetns(import.meta.url, { name: "provereading", timeoutMs: 120_000 }, () => {
  before(async () => {
    sh("ip link set lo up; ip addr add 10.200.0.2/24 dev lo");
    execFileSync("nft", ["-f", "-"], { input: (await runCommand(render, ON_NODE, examplesAsJson())).out });
  });

  test("nothing on the node is changed, and no table is made", async () => {
    sh("iptables-nft -A FORWARD -m comment --comment x -j ACCEPT");
    sh("iptables-legacy -t raw -A PREROUTING -d 203.0.113.1 -j DROP");
    sh("ip link add prr0 type veth peer name prr1; tc qdisc add dev prr0 clsact");
    // Loads the kernel's list of hooks, if there is one.
    assert.notEqual((await prove()).out, "");
    const earlier = await state();
    const { status, out, err } = await prove();
    assert.equal(status, 1, out + err);
    assert.match(out, /dropped/);
    assert.deepEqual(await state(), earlier);
    sh("iptables-legacy -t raw -F; ip link delete prr0; iptables-nft -F");
    assert.equal((await prove()).status, 0);
  });

  test("matches and targets of iptables-nft are read, also where another program's rule stands in their table", async () => {
    const rules = [
      "-t nat -A PREROUTING -m addrtype --dst-type LOCAL -m comment --comment portmap -j RETURN",
      `-t nat -A PREROUTING -m addrtype ! --dst-type LOCAL -d 203.0.113.9 -p tcp -m multiport --dports 80,90 -j DNAT --to-destination 10.180.0.1`,
      "-A FORWARD -m conntrack --ctstate INVALID -m comment --comment x -j DROP",
    ];
    for (const rule of rules) sh(`iptables-nft ${rule}`);
    sh("nft add rule ip nat PREROUTING ip daddr '{ 203.0.113.1, 203.0.113.2 }' counter");
    sh("nft insert rule ip filter FORWARD ip daddr '{ 203.0.113.1, 203.0.113.2 }' counter");
    const beside = await prove();
    assert.equal(beside.status, 1, beside.out);
    assert.match(beside.out, /to 203\.0\.113\.9(?:.*\n)*.*to 10\.180\.0\.1/);
    assert.doesNotMatch(beside.out, /cannot be proved|is not understood/);
    sh("iptables-nft -t nat -D PREROUTING 2");
    sh("ipset create kpts-empty hash:ip");
    sh(
      `iptables-nft -t nat -A PREROUTING -d ${CLUSTER_IP} -m set --match-set kpts-empty src -j DNAT --to-destination 10.180.0.99`,
    );
    const harmless = await prove();
    assert.equal(harmless.status, 0, harmless.out);
    sh(
      `iptables-nft -t nat -A PREROUTING -d ${CLUSTER_IP} -m policy --dir in --pol none -j DNAT --to-destination 10.180.0.99`,
    );
    const strange = await prove();
    assert.equal(strange.status, 2, strange.out);
    sh("nft delete table ip nat; nft delete table ip filter; ipset destroy kpts-empty");
  });

  test("what may not be read is said in a line each", async () => {
    sh("iptables-legacy -t raw -A PREROUTING -d 203.0.113.1 -j DROP");
    const raw = proveWithout("net_raw");
    assert.equal(raw.status, 2, raw.stdout);
    assert.match(raw.stdout, /tables of iptables-legacy \(raw\) were not read: iptables-legacy-save: .*\n/);
    sh("iptables-legacy -t raw -F");
    const admin = proveWithout("net_admin", "sys_admin");
    assert.equal(admin.status, 2, admin.stdout);
    for (const line of [
      /tables of nftables were not read: nft -j list ruleset: .*\n/,
      /not read: tcx programs \(needs NET_ADMIN\): EPERM\n/,
      /not read: netfilter's hooks \(needs NET_ADMIN\): EPERM\n/,
    ])
      assert.match(admin.stdout, line);
    assert.match(
      admin.stdout + admin.stderr,
      /not read: programs of cgroups \(needs NET_ADMIN\): EPERM\n|the node's cgroup cannot be seen from here: programs at it are not known\n/,
    );
    assert.doesNotMatch(admin.stdout, /NOT equal|every packet as the Services ask/);
  });

  test("rules that change each time that they are read are not called known", async () => {
    const loop = "while :; do nft add table ip restless; nft delete table ip restless; done";
    const restless = spawn("sh", ["-c", loop], { stdio: "ignore" });
    await once(restless, "spawn");
    const { status, out } = await prove();
    restless.kill();
    await once(restless, "exit");
    assert.equal(status, 2, out);
    assert.match(
      out,
      /not all rules are known: other programs changed the rules each of the 3 times that they were read/,
    );
    sh("nft delete table ip restless 2>/dev/null; true");
    assert.equal((await prove()).status, 0);
  });

  test("250 devices with filters cost at most 100 ms of processor", async () => {
    const pairs = Array.from({ length: 125 }, (_, index) => index);
    const links = pairs.map((index) => `link add prp${index} type veth peer name prq${index}`);
    execFileSync("ip", ["-batch", "-"], { input: links.join("\n") });
    const queues = pairs.flatMap((index) => ["p", "q"].map((side) => `qdisc add dev pr${side}${index} clsact`));
    execFileSync("tc", ["-batch", "-"], { input: queues.join("\n") });
    const { config } = await readChoices({});
    const spent: number[] = [];
    for (let round = 0; round < 8; round += 1) {
      const start = processorMs();
      await foundInKernel(["IPv4"], config);
      spent.push(processorMs() - start);
    }
    const least = Math.min(...spent);
    assert.ok(least <= stretched(100), `${spent.map(Math.round).join(", ")} ms`);
  });
});

/** Of this process and the tools that it ran, for which the kernel counts hundredths of a second. */
function processorMs(): number {
  const fields = readFileSync("/proc/self/stat", "utf8").split(") ")[1]?.split(" ") ?? [];
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000 + 10 * (Number(fields[13]) + Number(fields[14]));
}
