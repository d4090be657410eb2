/**
 * Random rules of other programs beside the proxy's, in a kernel: no packet meets another fate than a proof gives its class.
 * The same 40 sets in each run, which take more than a minute of processor time; 5,000 others in `test:all`, or as many as
 * `KPTS_PROVE_FUZZ_SETS` says; of these `KPTS_PROPERTY_SEED` is the first seed, which a failure shows.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { netnsSkip } from "../../testkit/support/netns.ts";
import { skipWithoutTool } from "../../testkit/support/tools.ts";
import type { PacketLab } from "../trace/packet-lab.ts";
import { judge } from "./prove-fuzz.ts";
import { traceLab, type Variant } from "./trace-against-kernel.ts";

const ASKED = process.env.KPTS_PROVE_FUZZ_SETS;
const IS_LONG = process.env.KPTS_PROPERTY_SCALE !== undefined;
const SETS = Number(ASKED ?? (IS_LONG ? 5_000 : 40));
const IS_FIXED = ASKED === undefined && !IS_LONG;
const FIRST = IS_FIXED ? 9000 : Number(process.env.KPTS_PROPERTY_SEED ?? Date.now() % 1_000_000);

/** Where the order of two programs' chains decides, for example, the rules do not tell. */
const MOST_UNPROVED = 0.2;

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
    if (IS_FIXED) assert.ok(unproved <= MOST_UNPROVED * SETS, `${unproved} of ${SETS} sets are not proved whole`);
    t.diagnostic(`${sent} packets; ${unproved} of ${SETS} sets are not proved whole`);
  });
});
