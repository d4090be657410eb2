/** A transport for tests: no rate limit, no proxy from the environment, and no settings but the test's. */
import { systemClock } from "../../../../async/clock.ts";
import { silentLogger } from "../../../../logging/logger.ts";
import type { RunProgram } from "../auth/exec-credentials.ts";
import { createIdentity } from "../auth/identity.ts";
import { type ClientConfig, UNSAID } from "../connection/client-config.ts";
import { RateLimiter } from "../connection/rate-limiter.ts";
import { Transport, type TransportOptions } from "../connection/transport.ts";

export function transportWith(
  config: Partial<ClientConfig> & Pick<ClientConfig, "server">,
  { run, ...options }: Partial<TransportOptions> & { readonly run?: RunProgram } = {},
): Transport {
  const full = { ...UNSAID, ...config };
  return new Transport({
    config: full,
    identity: createIdentity({ config: full, clock: systemClock, log: silentLogger, ...(run && { run }) }),
    limiter: new RateLimiter({ qps: -1, burst: 0, clock: systemClock }),
    userAgent: "kube-proxy/v1.36.2 (linux/amd64) kubernetes/unknown",
    clock: systemClock,
    env: {},
    ...options,
  });
}
