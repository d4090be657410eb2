/** What trace says of packets in ipvs mode, against a kernel that has IPVS. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { historyRuns } from "../../testkit/support/fast-check.ts";
import { skipWithoutIpvs } from "../../testkit/support/kernel-modules.ts";
import { netnsSkip } from "../../testkit/support/netns.ts";
import { skipWithoutTool } from "../../testkit/support/tools.ts";
import type { PacketLab } from "../trace/packet-lab.ts";
import {
  compare,
  compareClasses,
  PACKETS_PER_CLUSTER,
  shares,
  traceLab,
  type Variant,
} from "./trace-against-kernel.ts";

const RUNS = historyRuns("KPTS_PROPERTY_TRACE_RUNS", 1);
const IPVS: Variant = { name: "ipvs", mode: "ipvs", layout: "Compatible" };

describe("a packet meets a fate that its trace has, in ipvs mode", {
  skip: netnsSkip || skipWithoutIpvs() || skipWithoutTool("conntrack", "conntrack"),
}, () => {
  let lab: PacketLab;
  before(async () => {
    for (const module of ["nf_conntrack_netlink", "ip_vs_rr", "dummy"]) execFileSync("modprobe", ["-q", module]);
    lab = await traceLab();
  });
  after(() => lab.remove());

  test("real servers are chosen as often as the trace says", () => shares(lab, IPVS, 3));

  const first = Number(process.env.KPTS_PROPERTY_SEED ?? Date.now() % 1_000_000);
  for (const family of ["IPv4", "IPv6"] as const) {
    test(`one packet of each class of packets, ${family}`, async () => {
      const { sent } = await compareClasses(lab, IPVS, family, first);
      assert.ok(sent > 0);
    });

    test(family, async () => {
      let count = 0;
      for (let run = 0; run < RUNS; run += 1) count += await compare(lab, IPVS, family, first + run);
      assert.equal(count, RUNS * PACKETS_PER_CLUSTER);
    });
  }
});
