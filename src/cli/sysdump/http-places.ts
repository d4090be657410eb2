/** Where a daemon of a configuration serves metrics and health to clients of the same host. */
import { splitHostPort } from "../../config/bind-address.ts";
import { isUnspecified, parseIpAddress } from "../../net/ip.ts";
import { UsageError } from "../exit.ts";
import { readSettings } from "../inspect-options.ts";

/** `HOST:PORT`; empty where the configuration switches it off. */
export interface HttpPlaces {
  readonly metrics: string;
  readonly healthz: string;
}

/** @param config path of the KubeProxyConfiguration; without one, or with one that cannot be used, upstream's defaults. */
export async function httpPlaces(config: string | undefined): Promise<HttpPlaces> {
  const { metricsBindAddress, healthzBindAddress } = await settingsIn(config);
  return { metrics: askedAt(metricsBindAddress), healthz: askedAt(healthzBindAddress) };
}

async function settingsIn(config: string | undefined) {
  try {
    return await readSettings(config, undefined, undefined);
  } catch (error) {
    // The daemon will hardly run with it, and its part of the archive has what is in the file.
    if (!(error instanceof UsageError) || config === undefined) throw error;
    return await readSettings(undefined, undefined, undefined);
  }
}

/** A server at all addresses is asked at loopback. Pure. */
function askedAt(address: string): string {
  const { host = "", port = "" } = splitHostPort(address) ?? {};
  const parsed = parseIpAddress(host);
  if (parsed === undefined || !isUnspecified(parsed)) return address;
  return `${parsed === "::" ? "[::1]" : "127.0.0.1"}:${port}`;
}
