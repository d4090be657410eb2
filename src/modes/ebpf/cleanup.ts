/** Removes the programs and maps of the eBPF mode; the nftables mode removes the rules, which are its own. */
import type { KubeProxyConfig } from "../../contract/config/config.ts";
import type { CleanUp } from "../../contract/dataplane.ts";
import type { Bpf } from "../../kernel/bpf/bpf.ts";
import { kernelBpf } from "../../kernel/bpf/kernel-bpf.ts";
import { ownNetnsCookie } from "../../kernel/netns-cookie.ts";
import type { Logger } from "../../logging/logger.ts";
import { detachStale, endPins } from "./node-pins.ts";
import { STUCK } from "./socket-news.ts";

/** The number of this process's start. */
const START = process.hrtime.bigint();

export const identity = () => ({ owner: ownNetnsCookie(), start: START });
export const detaching = () => ({ ...identity(), nowNs: process.hrtime.bigint() });

/** @returns whether nothing is left of them. */
export async function removePins(
  bpf: Bpf,
  { config, log }: { readonly config?: KubeProxyConfig | undefined; readonly log: Logger },
  own?: Parameters<typeof endPins>[3],
): Promise<boolean> {
  try {
    await endPins(bpf, config, ownNetnsCookie, own);
    return true;
  } catch (error) {
    log.error(STUCK, error);
    return false;
  }
}

export const cleanUp: CleanUp = async (log, config) => {
  const isRemoved = await removePins(kernelBpf(), { log, config });
  return !detachStale(kernelBpf(), log, detaching) && isRemoved;
};
