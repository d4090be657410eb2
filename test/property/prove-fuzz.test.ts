/**
 * Random rules of other programs beside the proxy's, in a kernel: no packet meets another fate than a proof gives its class.
 * The same sets in each run, as many as about two minutes of processor time hold: `KPTS_PROVE_FUZZ_SETS` asks for so many
 * others; of these `KPTS_PROPERTY_SEED` is the first seed, which a failure shows.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { netnsSkip } from "../../testkit/support/netns.ts";
import { skipWithoutTool } from "../../testkit/support/tools.ts";
import type { PacketLab } from "../trace/packet-lab.ts";
import { judge } from "./prove-fuzz.ts";
import { traceLab, type Variant } from "./trace-against-kernel.ts";

const ASKED = process.env.KPTS_PROVE_FUZZ_SETS;
const SETS = Number(ASKED ?? 14);
const FIRST = ASKED === undefined ? 7000 : Number(process.env.KPTS_PROPERTY_SEED ?? Date.now() % 1_000_000);

const VARIANTS: readonly Variant[] = [
  { name: "nftables", mode: "nftables", layout: "Compatible" },
  { name: "flat", mode: "nftables", layout: "Flat" },
  { name: "iptables", mode: "iptables", layout: "Compatible" },
];

describe("beside rules of other programs", { skip: netnsSkip || skipWithoutTool("conntrack", "conntrack") }, () => {
  let lab: PacketLab;
  before(async () => {
    lab = await traceLab();
    lab.watchArrivals();
  });
  after(() => lab.remove());

  test(`a packet meets what a proof says, or the proof says that it does not know: ${SETS} sets`, async (t) => {
    t.diagnostic(`seeds ${FIRST} to ${FIRST + SETS - 1}`);
    let [sent, unproved] = [0, 0];
    for (let seed = FIRST; seed < FIRST + SETS; seed += 1) {
      const variant = VARIANTS[seed % VARIANTS.length];
      assert.ok(variant);
      const family = seed % 4 === 3 ? "IPv6" : "IPv4";
      const found = await judge(lab, variant, family, seed);
      assert.deepEqual(found.wrong, [], `seed ${seed}, ${variant.name}, ${family}, beside\n${found.foreign}`);
      sent += found.sent;
      if (found.unproved.length > 0) unproved += 1;
    }
    t.diagnostic(`${sent} packets; ${unproved} of ${SETS} sets are not proved whole`);
  });
});
