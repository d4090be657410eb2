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
import { filtersAtDevices, filtersBy } from "./device-filters.ts";

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
    const { names, found } = await filtersAtDevices(3);
    assert.deepEqual(found, []);
    const [index] = [...names].find(([, name]) => name === "df0") ?? [0];
    const match = "protocol ip u32 match ip dst 10.0.0.1/32 flowid 1:1";
    tc("filter add dev df0 egress", match);
    tc("filter add dev df1 parent ffff:", match);
    const both = (await filtersAtDevices(3)).found.sort();
    assert.deepEqual(both, ["tc filter u32 at df0 egress", "tc filter u32 at df1 ingress"]);
    assert.equal((await filtersAtDevices(1)).found.length, 1, "no more than asked for");
    const link = xdpProgram(index);
    if (link === undefined) return;
    const [first, ...rest] = (await filtersAtDevices(9)).found;
    closeSync(link);
    assert.match(first ?? "", /^XDP program \d+ at df0$/);
    assert.deepEqual(rest.sort(), both);
  });
});

test("a kernel without traffic control has no filters; other errors are thrown", async () => {
  const refusing = (code: "EOPNOTSUPP" | "EPERM") =>
    filtersBy(
      {
        async dump({ bytes }, onReply) {
          const type = bytes.readUInt16LE(4);
          if (type === 38) throw new NetlinkError(code, code);
          // ifinfomsg of the device 7, and its name.
          const device = Buffer.from("0000000007000000000000000000000007000300646f0000", "hex");
          onReply({ type: 16, flags: 2, sequence: 1, portId: 1, input: byteReader(device), start: 0, end: 24 });
        },
      },
      3,
    );
  assert.deepEqual(await refusing("EOPNOTSUPP"), { names: new Map([[7, "do"]]), found: [] });
  await assert.rejects(refusing("EPERM"), { code: "EPERM" });
});
