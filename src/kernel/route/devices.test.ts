import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { closeSync } from "node:fs";
import { test } from "node:test";
import { inNetns } from "../../../testkit/support/in-netns.ts";
import { LINK_CREATE, PROG_LOAD } from "../bpf/attributes.ts";
import { encode } from "../bpf/layout.ts";
import { addressOf, fixedCopy, tryBpf } from "../bpf/system-call.ts";
import { byteReader } from "../netlink/attributes.ts";
import { NetlinkError } from "../netlink/errors.ts";
import type { NetlinkSocket } from "../netlink/socket.ts";
import { devicesBy, devicesHere, filtersAt, filtersBy, waysPast } from "./devices.ts";

/** Attaches a program that lets everything pass. @returns its link; undefined where this kernel has no such links */
function xdpProgram(targetFd: number): number | undefined {
  // r0 = XDP_PASS; exit
  const code = fixedCopy(Buffer.from("b7000000020000009500000000000000", "hex"));
  const where = { instructions: addressOf(code), license: addressOf(fixedCopy(Buffer.from("GPL\0"))) };
  const [XDP, AT_XDP] = [6, 37];
  const load = { programType: XDP, expectedAttachType: AT_XDP, instructionCount: 2, ...where };
  const { result: programFd } = tryBpf("PROG_LOAD", encode(PROG_LOAD, load));
  if (programFd < 0) return undefined;
  const { result } = tryBpf("LINK_CREATE", encode(LINK_CREATE, { programFd, targetFd, attachType: AT_XDP }));
  closeSync(programFd);
  return result < 0 ? undefined : result;
}

inNetns(import.meta.url, { name: "devfilters" }, () => {
  test("filters of both directions and XDP programs are found, and queues without a filter are nothing", async () => {
    const tc = (...words: string[]) =>
      execFileSync(
        "tc",
        words.flatMap((word) => word.split(" ")),
      );
    execFileSync("ip", ["link", "add", "df0", "type", "veth", "peer", "name", "df1"]);
    tc("qdisc add dev df0 clsact");
    tc("qdisc add dev df1 ingress");
    tc("qdisc add dev lo root pfifo");
    const all = async () => (await filtersAt(await devicesHere())).map(({ what }) => what);
    assert.deepEqual(await all(), []);
    const { index = 0 } = (await devicesHere()).find(({ name }) => name === "df0") ?? {};
    const match = "protocol ip u32 match ip dst 10.0.0.1/32 flowid 1:1";
    tc("filter add dev df0 egress", match);
    tc("filter add dev df1 parent ffff:", match);
    const both = [...(await all())].sort();
    assert.deepEqual(both, ["tc filter u32 at df0 egress", "tc filter u32 at df1 ingress"]);
    const link = xdpProgram(index);
    if (link === undefined) return;
    const [first, ...rest] = await all();
    closeSync(link);
    assert.match(first ?? "", /^XDP program \d+ at df0$/);
    assert.deepEqual(rest.sort(), both);
  });

  test("ports know their bridge or VRF, and whether they send back", async () => {
    const ip = (words: string) => execFileSync("ip", words.split(" "));
    ip("link add dbr0 type bridge");
    ip("link add dp0 type veth peer name dp1");
    for (const name of ["dp0", "dp1"]) ip(`link set ${name} master dbr0`);
    ip("link set dp1 type bridge_slave hairpin on");
    const of = new Map((await devicesHere()).map((device) => [device.name, device]));
    const words = ["lo", "dbr0", "dp0", "dp1"].map((name) => {
      const { kind, isLoopback, master, portOf, lacksHairpin } = of.get(name) ?? {};
      return [name, kind, isLoopback, master, portOf, lacksHairpin].join(" ");
    });
    assert.deepEqual(words, [
      "lo  true   false",
      "dbr0 bridge false   false",
      "dp0 veth false dbr0 bridge true",
      "dp1 veth false dbr0 bridge false",
    ]);
  });
});

test("a kernel without traffic control has no filters; other errors are thrown", async () => {
  const kernel = (code: "EOPNOTSUPP" | "EPERM"): Pick<NetlinkSocket, "dump"> => ({
    async dump({ bytes }, onReply) {
      const type = bytes.readUInt16LE(4);
      if (type === 38) throw new NetlinkError(code, code);
      // ifinfomsg of the device 7, and its name.
      const device = Buffer.from("0000000007000000000000000000000007000300646f0000", "hex");
      onReply({ type: 16, flags: 2, sequence: 1, portId: 1, input: byteReader(device), start: 0, end: 24 });
    },
  });
  const devices = await devicesBy(kernel("EPERM"));
  assert.deepEqual(
    devices.map(({ index, name, xdp }) => [index, name, xdp]),
    [[7, "do", []]],
  );
  assert.deepEqual(await filtersBy(kernel("EOPNOTSUPP"), devices), []);
  await assert.rejects(filtersBy(kernel("EPERM"), devices), { code: "EPERM" });
  const ofNetkit = devices.map((device) => ({ ...device, kind: "netkit" }));
  assert.deepEqual(await filtersBy(kernel("EOPNOTSUPP"), ofNetkit), [{ what: "what netkit runs at do", device: "do" }]);
});

test("packets by what stands on a device meet what is at it", () => {
  const device = (name: string, more: object = {}) => ({
    ...{ name, index: 1, kind: undefined, isLoopback: false, master: undefined, portOf: undefined, xdp: [] },
    ...{ lacksHairpin: false, ...more },
  });
  const devices = [
    ...[
      device("lo"),
      device("eth0"),
      device("eth1", { master: "bond0", portOf: "bond" }),
      device("bond0", { kind: "bond" }),
    ],
    ...[device("cni0", { kind: "bridge" }), device("veth1", { kind: "veth", master: "cni0", portOf: "bridge" })],
    device("flannel.1", { kind: "vxlan" }),
  ];
  const past = (name: string) => Object.values(waysPast(devices, name)).map((names) => [...new Set(names)].sort());
  assert.deepEqual(past("lo"), [["lo"], ["lo"]]);
  assert.deepEqual(past("eth0"), [
    ["bond0", "eth0", "flannel.1"],
    ["bond0", "eth0", "flannel.1"],
  ]);
  assert.deepEqual(past("veth1"), [
    ["bond0", "flannel.1", "veth1"],
    ["bond0", "cni0", "flannel.1", "veth1"],
  ]);
});
