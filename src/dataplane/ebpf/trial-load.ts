/** Whether the kernel takes programs, found out by loading them once with small maps. */

import { messageOf } from "../../logging/message-of.ts";
import type { OpenMaps } from "./open-maps.ts";
import { SocketMaps, type SocketMapsOptions } from "./socket-maps.ts";

interface TrialPrograms {
  load(maps: OpenMaps): void;
  close(): void;
}

/** Loads programs and forgets them. @returns what keeps them from being loaded, in words; undefined when nothing does. */
export function whyNotLoaded(
  options: Pick<SocketMapsOptions, "bpf" | "remembered">,
  makePrograms: () => TrialPrograms,
): string | undefined {
  try {
    const programs = makePrograms();
    const maps = new SocketMaps(
      { ...options, family: "IPv4", onMoved: () => {}, nowMs: () => 0 },
      { services: 0, endpoints: 0 },
    );
    try {
      programs.load(maps.open);
    } finally {
      programs.close();
      maps.close();
    }
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}
