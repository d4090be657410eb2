/** How the process ends when it is told to: what is said, and how long that may take. */
import type { KubeProxyConfig } from "../config/config.ts";

export interface StopPolicy {
  readonly message: string;
  /** After this long the process ends anyway. */
  readonly limitMs: number;
}

const LIMIT_MS = 5_000;

/** Rules stay in the kernel and work on; those of the userspace mode would lead to nobody. */
export const KEEPS_RULES: StopPolicy = { message: "Stopping; the rules stay in place", limitMs: LIMIT_MS };

/** What a daemon so configured does. Pure. */
export function stopPolicyOf(config: Pick<KubeProxyConfig, "mode" | "userspace">): StopPolicy {
  if (config.mode !== "userspace") return KEEPS_RULES;
  return {
    message: "Stopping; no new connections are taken, and those there are may end",
    limitMs: LIMIT_MS + config.userspace.drainTimeoutMs,
  };
}
