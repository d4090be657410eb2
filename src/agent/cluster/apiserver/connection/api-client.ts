/** A client of one API server: the configuration, credentials and rate limit that its transports share. */

import type { Clock } from "../../../../async/clock.ts";
import type { Logger } from "../../../../logging/logger.ts";
import type { ExecPluginObserver } from "../auth/exec-credentials.ts";
import { createIdentity } from "../auth/identity.ts";
import type { ClientConfig } from "./client-config.ts";
import { RateLimiter } from "./rate-limiter.ts";
import type { RestObserver } from "./rest-metrics.ts";
import { Transport } from "./transport.ts";

interface ApiClientOptions {
  readonly config: ClientConfig;
  /** `clientConnection.qps` and `.burst`, for all transports together. */
  readonly qps: number;
  readonly burst: number;
  /** `v1.37.0`; part of the User-Agent. */
  readonly version: string;
  /** The last part of the User-Agent: this program's own name, version and commit. */
  readonly product: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly observer?: RestObserver & ExecPluginObserver;
}

interface ApiClient {
  /** A transport with its own connections; all transports share credentials and rate limit. */
  newTransport(): Transport;
}

/**
 * Creates the client without sending or reading anything.
 *
 * @throws ClientConfigError if certificates embedded in the configuration cannot be read.
 */
export function createApiClient(options: ApiClientOptions): ApiClient {
  const { config, qps, burst, version, product, clock, log, observer } = options;
  const identity = createIdentity({ config, clock, log, observer });
  const limiter = new RateLimiter({ qps, burst, clock });
  const shared = { config, identity, limiter, userAgent: userAgent(version, product), clock, observer };
  return { newTransport: () => new Transport(shared) };
}

/** Upstream's User-Agent (`kubernetes/unknown` because there is no upstream commit), followed by this program's own. */
function userAgent(version: string, product: string): string {
  const architectures: Readonly<Record<string, string>> = { x64: "amd64", ia32: "386" };
  const platform = `${process.platform}/${architectures[process.arch] ?? process.arch}`;
  return `kube-proxy/${version} (${platform}) kubernetes/unknown ${product}`;
}
