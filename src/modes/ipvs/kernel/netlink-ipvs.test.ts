/** The kernel's IPVS passes the contract; and tests of what only a real kernel does. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { describe, type TestContext, test } from "node:test";
import { inNetns } from "../../../../testkit/support/in-netns.ts";
import { skipWithoutIpvs } from "../../../../testkit/support/kernel-modules.ts";
import { until } from "../../../../testkit/support/patience.ts";
import type { Exec } from "../../../kernel/process.ts";
import { type Logger, silentLogger } from "../../../logging/logger.ts";
import type { IpAddress } from "../../../net/ip.ts";
import { IpvsUnavailableError, type RealServerKey, type VirtualServer, type VirtualServerKey } from "./ipvs.ts";
import { type NetlinkIpvs, openNetlinkIpvs } from "./netlink-ipvs.ts";
import { openIpvs } from "./open-ipvs.ts";
import { ipvsContract } from "./testing/ipvs-contract.ts";

const SERVER: VirtualServer = {
  address: "10.96.0.1" as IpAddress, // canonical
  protocol: "TCP",
  port: 80,
  scheduler: "rr",
  flags: 0,
  timeoutSeconds: 0,
};

const ADD = { kind: "add-virtual-server", virtualServer: SERVER } as const;
/** Names the program with which the kernel loads modules. */
const KERNELS_LOADER = "/proc/sys/kernel/modprobe";

const ip = (...words: string[]): void => void execFileSync("ip", words);
const has = (tool: string): boolean => spawnSync(tool, ["--version"]).error === undefined;

async function open(t: TestContext): Promise<NetlinkIpvs> {
  const ipvs = await openNetlinkIpvs({ loadModule: async () => {} });
  await ipvs.flush();
  t.after(async () => {
    await ipvs.flush();
    await ipvs.close();
  });
  return ipvs;
}

/** Unloads IPVS and all modules that depend on it; flushed objects hold references for a moment. */
async function removeModules(): Promise<void> {
  await until("the modules to be let go", async () => {
    const [, users] = /^ip_vs \d+ \d+ (\S+)/m.exec(readFileSync("/proc/modules", "utf8")) ?? [];
    if (users === undefined) return true;
    const needing = users.split(",").filter((name) => /^\w/.test(name));
    spawnSync("modprobe", ["-r", ...needing, "ip_vs"]);
    return false;
  });
}

/** Both addresses are this namespace's own; client and server are this process. */
async function connection(t: TestContext, ipvs: NetlinkIpvs, key: VirtualServerKey, real: RealServerKey) {
  for (const address of [key.address, real.address]) ip("addr", "replace", `${address}/32`, "dev", "lo");
  const accepted: Socket[] = [];
  const server = createServer((socket) => void accepted.push(socket)).listen(real.port, real.address);
  await once(server, "listening");
  const client = connect(key.port, key.address);
  await once(client, "connect");
  const close = async (): Promise<void> => {
    client.destroy();
    for (const socket of accepted) socket.destroy();
    server.close();
  };
  t.after(close);
  const active = async (): Promise<number | undefined> => (await ipvs.realServers(key))?.[0]?.activeConnections;
  await until("an active connection", async () => (await active()) === 1);
  return async () => {
    await close();
    await until("its end", async () => (await active()) === 0);
  };
}

inNetns(import.meta.url, { name: "ipvs", timeoutMs: 240_000 }, () => {
  const skip = skipWithoutIpvs();

  ipvsContract({
    name: "the kernel's",
    skip,
    open: async (t) => {
      const ipvs = await open(t);
      return { ipvs, connect: (key, real) => connection(t, ipvs, key, real) };
    },
  });

  describe("IPVS of a real kernel", { skip }, () => {
    test("what goes through a virtual server is counted", async (t) => {
      const ipvs = await open(t);
      const real = { address: "10.180.0.1" as IpAddress, port: 8080, weight: 1 };
      await ipvs.apply([
        { kind: "add-virtual-server", virtualServer: SERVER },
        { kind: "add-real-server", virtualServer: SERVER, realServer: real },
      ]);
      const close = await connection(t, ipvs, SERVER, real);
      await close();
      await until("the connection to be counted", async () => (await ipvs.connections(SERVER)) === 1);
    });

    test("what ipvsadm adds is read, virtual servers of firewall marks are left out", {
      skip: has("ipvsadm") ? false : "no ipvsadm",
    }, async (t) => {
      const ipvs = await open(t);
      const lines = [
        "-A -t 10.96.0.1:80 -s rr",
        "-a -t 10.96.0.1:80 -r 10.180.0.1:8080 -m -w 7",
        "-A -u [fd00::1]:53 -s sh -p 120 -b sh-port",
        "-A -f 5 -s rr",
      ];
      execFileSync("ipvsadm", ["-R"], { input: `${lines.join("\n")}\n` });
      assert.deepEqual(await ipvs.virtualServers("IPv4"), [SERVER]);
      const udp = { address: "fd00::1" as IpAddress, protocol: "UDP", port: 53, scheduler: "sh" } as const;
      assert.deepEqual(await ipvs.virtualServers("IPv6"), [{ ...udp, flags: 0x11, timeoutSeconds: 120 }]);
      assert.equal((await ipvs.realServers(SERVER))?.[0]?.weight, 7);
    });

    test("ipvsadm shows what we add as what it would have added itself", {
      skip: has("ipvsadm") ? false : "no ipvsadm",
    }, async (t) => {
      const ipvs = await open(t);
      const persistent = { ...SERVER, port: 443, scheduler: "wlc", flags: 1, timeoutSeconds: 10800 };
      const six = { ...SERVER, address: "fd00::1" as IpAddress, protocol: "UDP" } as const;
      await ipvs.apply([
        { kind: "add-virtual-server", virtualServer: SERVER },
        { kind: "add-real-server", virtualServer: SERVER, realServer: { address: SERVER.address, port: 1, weight: 0 } },
        { kind: "add-virtual-server", virtualServer: persistent },
        { kind: "add-virtual-server", virtualServer: six },
      ]);
      const shown = execFileSync("ipvsadm", ["-S", "-n"], { encoding: "utf8" }).trim().split("\n").sort();
      assert.deepEqual(
        shown.map((line) => line.trim()),
        [
          "-A -t 10.96.0.1:443 -s wlc -p 10800",
          "-A -t 10.96.0.1:80 -s rr",
          "-A -u [fd00::1]:80 -s rr",
          "-a -t 10.96.0.1:80 -r 10.96.0.1:1 -m -w 0",
        ],
      );
    });

    // This unloads IPVS for the whole machine, and keeps the kernel from loading it again by itself.
    const isVm = process.env.KPTS_VM !== undefined;
    test("a module that was removed is loaded again, under a new number", {
      skip: !isVm && "for the virtual machine only",
    }, async (t) => {
      const loader = readFileSync(KERNELS_LOADER, "utf8");
      // Registered before other hooks: if one fails, later ones do not run.
      t.after(() => {
        writeFileSync(KERNELS_LOADER, loader);
        execFileSync("modprobe", ["-a", "ip_vs", "ip_vs_rr"]);
      });
      const bare = await open(t);
      await using ipvs = await openIpvs({ log: silentLogger });
      await ipvs.apply([ADD]);
      await ipvs.flush();
      writeFileSync(KERNELS_LOADER, "/bin/false");
      await removeModules();
      await assert.rejects(bare.virtualServers("IPv4"), IpvsUnavailableError);
      await assert.rejects(bare.apply([ADD]), /modprobe ip_vs/);
      await assert.rejects(bare.realServers(SERVER), IpvsUnavailableError);
      execFileSync("modprobe", ["ip_vs_rr"]);
      await removeModules();
      assert.deepEqual(await ipvs.virtualServers("IPv4"), []);
      execFileSync("modprobe", ["ip_vs_rr"]);
      assert.deepEqual(await ipvs.apply([ADD]), []);
      assert.deepEqual(await bare.virtualServers("IPv4"), [SERVER]);
    });
  });

  describe("a kernel without IPVS", { skip: skip === false && "this one has it" }, () => {
    test("is refused in words that say what is missing; what modprobe says is logged", async () => {
      const warnings: unknown[] = [];
      const log: Logger = { ...silentLogger, warn: (_message, facts) => void warnings.push(facts) };
      const calls: unknown[] = [];
      const exec: Exec = async (file, args) => {
        calls.push([file, ...args]);
        return { status: 1, stdout: "", stderr: "modprobe: FATAL: Module ip_vs not found\n" };
      };
      await assert.rejects(openIpvs({ log, exec }), (error) => {
        assert.ok(error instanceof IpvsUnavailableError);
        assert.match(error.message, /^ipvs not supported by the kernel: the module ip_vs is missing: load it/);
        return true;
      });
      assert.deepEqual(calls, [["modprobe", "-va", "ip_vs"]]);
      assert.deepEqual(warnings, [{ status: 1, output: "modprobe: FATAL: Module ip_vs not found" }]);
    });

    test("a machine without modprobe is refused for the same reason", async () => {
      const exec: Exec = () => Promise.reject(new Error("no such program"));
      await assert.rejects(openIpvs({ log: silentLogger, exec }), IpvsUnavailableError);
    });
  });
});
