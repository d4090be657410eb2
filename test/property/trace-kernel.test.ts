/**
 * What trace says of packets, against the kernel, in the modes that the host's kernel can have.
 * `KPTS_PROPERTY_TRACE_RUNS` sets how many clusters are tried per mode and family.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { LAYOUT_NAMES } from "../../src/modes/nftables/layout-name.ts";
import { historyRuns } from "../../testkit/support/fast-check.ts";
import { netnsSkip } from "../../testkit/support/netns.ts";
import { skipWithoutTool } from "../../testkit/support/tools.ts";
import type { PacketLab } from "../trace/packet-lab.ts";
import {
  compare,
  compareClasses,
  type Misreading,
  PACKETS_PER_CLUSTER,
  shares,
  traceLab,
  type Variant,
} from "./trace-against-kernel.ts";

const RUNS = historyRuns("KPTS_PROPERTY_TRACE_RUNS", 6);

/** So many are tried until a fault is found; of those from 1 on, the sixth has all. */
const MISREAD_CLUSTERS = 24;

/** Faults of an evaluator, over rules of iptables and objects of nft. */
const MISREADINGS: Readonly<Record<string, Misreading>> = {
  "negations are not seen": (text) => text.replace(/ ! (?=-[si] )/g, " ").replaceAll('"op":"!="', '"op":"=="'),
  "a refusal is taken for a drop": (text) =>
    text.replace(/-j REJECT.*$/gm, "-j DROP").replace(/\{"reject":\{[^{}]*\}\}|\{"reject":null\}/g, '{"drop":null}'),
  "masquerading is not seen": (text) =>
    text.replace(/^-A .*-j MASQUERADE.*\n/gm, "").replace(/\{"masquerade":(?:\{[^{}]*\}|null)\}/g, '{"counter":null}'),
  "the port of a translation is not read": (text) =>
    text
      .replace(/(?<=--to-destination \S+):\d+$/gm, "")
      .replace(/(?<="dnat":\{"addr":"[^"]+"),"port":\d+/g, "")
      .replace(/(?<=,\{"concat":\["[^"]+",)\d+(?=\]\}\])/g, "9"),
};

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

  for (const variant of VARIANTS) {
    test(`${variant.name}: one packet of each class of packets`, async (t) => {
      for (const family of ["IPv4", "IPv6"] as const) {
        const { sent, classes } = await compareClasses(lab, variant, family, first);
        assert.ok(sent > 0);
        t.diagnostic(`${family}: ${sent} of ${classes} classes can be sent`);
      }
    });

    for (const [fault, misreading] of Object.entries(MISREADINGS)) {
      // Rules of the userspace mode have neither.
      if (variant.mode === "userspace" && /negations|masquerading/.test(fault)) continue;
      test(`${variant.name}: an evaluator with a fault is found: ${fault}`, async () => {
        // One cluster in six has what is misread. The same ones each time: it is no chance whether a fault is found.
        for (let seed = 1; seed <= MISREAD_CLUSTERS; seed += 1) {
          try {
            await compareClasses(lab, variant, "IPv4", seed, misreading);
          } catch (error) {
            if (error instanceof assert.AssertionError) return;
            throw error;
          }
        }
        assert.fail("the kernel has agreed with it every time");
      });
    }
  }
});
