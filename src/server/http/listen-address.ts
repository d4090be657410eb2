/** The `IP:port` texts of `healthzBindAddress` and `metricsBindAddress`, and what to listen on for them. */
import { type IpAddress, isUnspecified, parseIpAddress } from "../../net/ip.ts";

/** One attempt to listen: options of `net.Server.listen`. */
export interface ListenTarget {
  readonly host: string;
  readonly port: number;
  readonly ipv6Only: boolean;
}

const HOST_PORT = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\+?\d+)$/;

/** Splits `10.0.0.1:80` or `[::1]:80`; port 0 is allowed. Pure. @returns `undefined` when the text is not `IP:port`. */
export function parseListenAddress(text: string): { readonly host: IpAddress; readonly port: number } | undefined {
  const match = HOST_PORT.exec(text);
  const host = parseIpAddress(match?.[1] ?? match?.[2] ?? "");
  const port = Number(match?.[3]);
  return match === null || host === undefined || port > 65535 ? undefined : { host, port };
}

/**
 * What to try in turn. An unspecified address of either family means all addresses of both, as in Go (reference operation.md
 * §9); the second try is for hosts without IPv6. Pure.
 */
export function listenTargets(host: IpAddress, port: number): readonly ListenTarget[] {
  if (!isUnspecified(host)) return [{ host, port, ipv6Only: false }];
  return [
    { host: "::", port, ipv6Only: false },
    { host: "0.0.0.0", port, ipv6Only: false },
  ];
}

/** Whether a listen error says that the host cannot do IPv6. */
function isNoIpv6(error: unknown): boolean {
  if (!(error instanceof Error) || !("code" in error)) return false;
  return error.code === "EAFNOSUPPORT" || error.code === "EADDRNOTAVAIL" || error.code === "EINVAL";
}

/**
 * Listens on the first target that the host can do; only a lack of IPv6 leads on to the next one.
 *
 * @param listen one attempt. Rejects with its error when that was the last target or another kind of failure.
 */
export async function listenOnFirst<T>(
  targets: readonly ListenTarget[],
  listen: (target: ListenTarget) => Promise<T>,
): Promise<T> {
  let failure: unknown = new Error("no address to listen on");
  for (const target of targets) {
    try {
      return await listen(target);
    } catch (error) {
      if (!isNoIpv6(error)) throw error;
      failure = error;
    }
  }
  throw failure;
}
