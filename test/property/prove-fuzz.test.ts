/**
 * Random rules of other programs beside the proxy's, in a kernel: no packet meets another fate than a proof gives its class.
 * The same 40 sets in each run, and in a virtual machine some with what its kernel has (queues, flow tables, SCTP, ipvs); 5,000 others
 * in `test:all`, or as many as `KPTS_PROVE_FUZZ_SETS` says. Of these `KPTS_PROPERTY_SEED` is the first, which is printed: a run goes on from any.
 */
import { testProofs } from "./prove-fuzz.ts";

const IS_LONG = process.env.KPTS_PROPERTY_SCALE !== undefined;
const IS_VM = process.env.KPTS_VM !== undefined;

testProofs(
  IS_VM
    ? // Emulated, a set takes ten seconds of a processor; of these, three have queues, one a flow table, one a virtual server.
      { sets: 5, firstFixed: 9_241 }
    : { sets: IS_LONG ? 5_000 : 40, firstFixed: IS_LONG ? undefined : 9_000 },
);
