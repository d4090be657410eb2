/**
 * What trace says of packets, against the kernel, in the modes that the host's kernel can have.
 * `KPTS_PROPERTY_TRACE_RUNS` sets how many clusters are tried per mode and family.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { LAYOUT_NAMES } from "../../src/dataplane/nftables/layout-name.ts";
import { historyRuns } from "../../testkit/support/fast-check.ts";
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

const RUNS = historyRuns("KPTS_PROPERTY_TRACE_RUNS", 6);

const VARIANTS: readonly Variant[] = [
  ...LAYOUT_NAMES.map((layout): Variant => ({ name: `nftables, ${layout}`, mode: "nftables", layout })),
  { name: "iptables", mode: "iptables", layout: "Compatible" },
  { name: "userspace", mode: "userspace", layout: "Compatible" },
];

describe("a packet meets a fate that its trace has", {
  skip: netnsSkip || skipWithoutTool("conntrack", "conntrack"),
}, () => {
  let lab: PacketLab;
  before(async () => {
    lab = await traceLab();
  });
  after(() => lab.remove());

  // In userspace mode no rule chooses: the process does.
  for (const variant of VARIANTS.filter(({ mode }) => mode !== "userspace")) {
    test(`${variant.name}: endpoints are chosen as often as the trace says`, async () => {
      for (const endpoints of [1, 3, 7]) await shares(lab, variant, endpoints);
    });
  }

  const first = Number(process.env.KPTS_PROPERTY_SEED ?? Date.now() % 1_000_000);
  for (const variant of VARIANTS) {
    for (const family of ["IPv4", "IPv6"] as const) {
      test(`${variant.name}, ${family}`, async () => {
        let count = 0;
        for (let run = 0; run < RUNS; run += 1) count += await compare(lab, variant, family, first + run);
        assert.equal(count, RUNS * PACKETS_PER_CLUSTER);
      });
    }
  }

  for (const variant of VARIANTS.filter(({ mode }) => mode !== "userspace")) {
    test(`${variant.name}: one packet of each class of packets`, async (t) => {
      for (const family of ["IPv4", "IPv6"] as const) {
        const { sent, classes } = await compareClasses(lab, variant, family, first);
        assert.ok(sent > 0);
        t.diagnostic(`${family}: ${sent} of ${classes} classes can be sent`);
      }
    });
  }
});
