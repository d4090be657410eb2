/** `kube-proxy prove --kernel` beside what else the kernel calls for packets: where the kernel lists it, and where not. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { closeSync, existsSync, readFileSync } from "node:fs";
import { execPath } from "node:process";
import { before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { LINK_CREATE, PROG_LOAD } from "../../src/kernel/bpf/attributes.ts";
import { encode } from "../../src/kernel/bpf/layout.ts";
import { addressOf, fixedCopy, tryBpf } from "../../src/kernel/bpf/system-call.ts";
import { netfilterHooks } from "../../src/kernel/netfilter-hooks.ts";
import { proveCommand } from "../../src/tools/cli/prove.ts";
import { render } from "../../src/tools/cli/render.ts";
import { inNetns } from "../../testkit/support/in-netns.ts";
import { runCommand } from "./run-command.ts";

const MAIN = fileURLToPath(new URL("../../src/tools/cli/main.ts", import.meta.url));
const POD = "10.180.0.9";
const ON_NODE = ["-f", "-", "--node", "node-a", "--mode", "nftables", "--family", "ipv4"];
const NO_LIST = "this kernel does not list its hooks";

const OBJECTS = JSON.stringify({
  apiVersion: "v1",
  kind: "List",
  items: [
    {
      ...{ apiVersion: "v1", kind: "Node", metadata: { name: "node-a" } },
      status: { addresses: [{ type: "InternalIP", address: "10.200.0.2" }] },
    },
    {
      ...{ apiVersion: "networking.k8s.io/v1", kind: "ServiceCIDR", metadata: { name: "kubernetes" } },
      spec: { cidrs: ["10.96.0.0/16"] },
    },
    {
      ...{ apiVersion: "v1", kind: "Service", metadata: { name: "web", namespace: "shop" } },
      spec: { clusterIP: "10.96.0.1", clusterIPs: ["10.96.0.1"], ipFamilies: ["IPv4"], ports: [{ port: 80 }] },
    },
    {
      ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4", ports: [{ port: 8080 }] },
      metadata: { name: "web", namespace: "shop", labels: { "kubernetes.io/service-name": "web" } },
      endpoints: [{ addresses: [POD], nodeName: "node-a", conditions: { ready: true } }],
    },
  ],
});

const prove = () => runCommand(proveCommand, [...ON_NODE, "--kernel"], OBJECTS);
const sh = (command: string) => execFileSync("sh", ["-c", command], { encoding: "utf8" });

function proveWithout(capability: string) {
  const argv = [`--bounding-set=-${capability}`, `--inh-caps=-${capability}`, execPath, MAIN, "prove", ...ON_NODE];
  return spawnSync("setpriv", [...argv, "--kernel"], { input: OBJECTS, encoding: "utf8" });
}

const modules = () =>
  existsSync("/proc/modules") ? readFileSync("/proc/modules", "utf8").match(/^\S+/gm)?.sort() : undefined;

/** A program that lets everything pass, at a hook of IPv4. @returns its link; undefined where this kernel has none there */
function netfilterProgram(): number | undefined {
  // r0 = NF_ACCEPT; exit
  const code = fixedCopy(Buffer.from("b7000000010000009500000000000000", "hex"));
  const where = {
    instructionCount: 2,
    instructions: addressOf(code),
    license: addressOf(fixedCopy(Buffer.from("GPL\0"))),
  };
  const [PROG_TYPE_NETFILTER, AT_NETFILTER, IPV4, FORWARD, PRIORITY] = [32, 45, 2, 2, -5];
  const named = { programType: PROG_TYPE_NETFILTER, expectedAttachType: AT_NETFILTER };
  const load = encode(PROG_LOAD, { ...named, programName: Buffer.from("stranger"), ...where });
  const { result: programFd } = tryBpf("PROG_LOAD", load);
  if (programFd < 0) return undefined;
  const link = Buffer.from(encode(LINK_CREATE, { programFd, attachType: AT_NETFILTER }));
  // struct { pf, hooknum, priority, flags } netfilter
  for (const [at, value] of [IPV4, FORWARD, PRIORITY].entries()) link.writeInt32LE(value, 16 + 4 * at);
  const { result } = tryBpf("LINK_CREATE", link);
  closeSync(programFd);
  return result < 0 ? undefined : result;
}

inNetns(import.meta.url, { name: "provehooks", timeoutMs: 120_000 }, () => {
  let isListed: boolean;
  before(async () => {
    sh("ip addr add 10.200.0.2/24 dev lo");
    execFileSync("nft", ["-f", "-"], { input: (await runCommand(render, ON_NODE, OBJECTS)).out });
    const loaded = modules();
    const { status, out, err } = await prove();
    assert.equal(status, 0, out + err);
    const more = modules()?.filter((name) => loaded?.includes(name) !== true);
    isListed = (await netfilterHooks([])) !== undefined;
    assert.equal(err.includes(NO_LIST), !isListed, err);
    assert.deepEqual(more ?? [], isListed && more !== undefined && more.length > 0 ? ["nfnetlink_hook"] : []);
  });

  test("programs at netfilter's hooks are named by place; without SYS_ADMIN only where hooks are listed", async () => {
    const none = proveWithout("sys_admin");
    assert.equal(none.status, isListed ? 0 : 2, none.stdout);
    const link = netfilterProgram();
    if (link === undefined) return;
    const [some, named] = [proveWithout("sys_admin"), await prove()];
    closeSync(link);
    const place = isListed ? "the hook ip forward, priority -5" : "a netfilter hook of this or another namespace";
    assert.equal(named.status, 2, named.out);
    assert.match(named.out, new RegExp(`program \\d+ \\(stranger\\) at ${place}: its content is not read`));
    assert.match(named.out, /Everything else is equal/);
    if (isListed) assert.match(some.stdout, /program \d+ at the hook ip forward, priority -5: its content is not read/);
  });

  describe("where the kernel lists its hooks", () => {
    const add = (table: string, rule: string) =>
      sh(`nft 'table ip ${table} { chain c { type filter hook forward priority -7; ${rule}; }; }'`);
    const [marks, drops] = [`ip daddr ${POD} meta mark set 7`, `meta mark 7 drop`];

    test("the order of two tables of one priority is the kernel's", async (t) => {
      add("a", marks);
      add("b", drops);
      const newest = await prove();
      sh("nft delete table ip b; nft delete table ip a");
      if (!isListed) {
        assert.equal(newest.status, 2, newest.out);
        t.skip(NO_LIST);
        return;
      }
      assert.equal(newest.status, 0, newest.out + newest.err);
      add("b", drops);
      add("a", marks);
      const oldest = await prove();
      sh("nft delete table ip b; nft delete table ip a");
      assert.equal(oldest.status, 1, oldest.out + oldest.err);
    });

    test("a function that is not known is named, and those of usual modules are known", async (t) => {
      if (!isListed) {
        t.skip(NO_LIST);
        return;
      }
      sh("iptables-legacy -t mangle -A PREROUTING -j ACCEPT; iptables-legacy -t nat -A PREROUTING -j ACCEPT");
      sh("iptables-nft -A FORWARD -m conntrack --ctstate INVALID -j DROP");
      sh("ip link add br0 type bridge; modprobe -q br_netfilter; true");
      const usual = await prove();
      assert.equal(usual.status, 0, usual.out + usual.err);
      if (
        spawnSync("sh", ["-c", "ip link add d0 type dummy && ip link add iv0 link d0 type ipvlan mode l3s"]).status !==
        0
      ) {
        t.skip("no ipvlan");
        return;
      }
      const stranger = await prove();
      sh("ip link delete d0");
      assert.equal(stranger.status, 2, stranger.out);
      assert.match(
        stranger.out,
        /cannot be proved: ipvlan_nf_input of the module ipvlan at ip input, priority \d+, is not understood/,
      );
      assert.match(stranger.out, /Everything else is equal/);
    });
  });
});
